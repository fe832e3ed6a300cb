package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"bashd/internal/auth"
	"bashd/internal/exec"
	"bashd/internal/metrics"
	"bashd/internal/output"
)

// Bounds of what a connection may cost.
const (
	headerTimeout   = 10 * time.Second
	bodyTimeout     = 60 * time.Second // for the whole body, once the header is there
	placeTimeout    = 10 * time.Second // for a place among the large bodies
	idleTimeout     = 2 * time.Minute
	maxHeaderBytes  = 64 << 10
	defaultMaxBody  = 8 << 20
	smallBody       = 256 << 10        // bodies up to here are read without waiting
	largeBodies     = 4                // bodies beyond smallBody that are in memory at once
	writeTimeout    = 60 * time.Second // for a small answer
	slowestClient   = 1 << 20          // bytes a second that a large answer must be taken at, on top
	largeAnswer     = 1 << 20          // output beyond this makes an answer a large one
	largeAnswers    = 4                // that are encoded and written at once
	clientPollEvery = 500 * time.Millisecond
)

// Runner is what this package asks of the domain; *exec.Manager is one. Its
// errors are *exec.Error; any other error is answered as INTERNAL.
type Runner interface {
	// Run runs r to its end. The end of ctx means that the caller went away. With YieldAfter the
	// answer may be a task instead (Kind Background): the command goes on. replayed: nothing was
	// started, run is what the first request with this key got.
	Run(ctx context.Context, c exec.Caller, r exec.Request) (run exec.Run, replayed bool, err error)
	// Start starts a background task and returns it as it was admitted.
	Start(ctx context.Context, c exec.Caller, r exec.Request) (task exec.Run, replayed bool, err error)

	// These take a kind: the id of a task is unknown among the runs, and the other way round.
	Get(c exec.Caller, k exec.Kind, id string) (exec.Run, error)
	// List returns what o selects, newest first, and where to go on (0: nowhere).
	List(c exec.Caller, o exec.ListOptions) (runs []exec.Run, next int64, err error)
	Kill(ctx context.Context, c exec.Caller, k exec.Kind, id, reason string) (exec.KillOutcome, exec.Run, error)
	// OpenStream returns the content of a stream as of now, its length, and when it last changed.
	OpenStream(c exec.Caller, k exec.Kind, id string, s exec.StreamName) (io.ReadSeekCloser, int64, time.Time, error)

	// These are about tasks only.

	// Wait returns the task when it has settled, or as it is after timeout or at the end of ctx.
	Wait(ctx context.Context, c exec.Caller, id string, timeout time.Duration) (exec.Run, error)
	// Output reads from a cursor and moves nothing; Consume reads on from where the last Consume ended.
	Output(ctx context.Context, c exec.Caller, id string, o exec.ReadOptions) (exec.Page, error)
	Consume(ctx context.Context, c exec.Caller, id string) (exec.Page, error)
	// WriteStdin returns how many bytes the command's pipe took.
	WriteStdin(ctx context.Context, c exec.Caller, id string, data []byte, end bool) (written int, err error)
	Delete(ctx context.Context, c exec.Caller, id string) error

	Info() exec.Info
}

// Options are what a [Server] is made of. All fields are required unless their
// comment says otherwise.
type Options struct {
	Runner  Runner
	Metrics *metrics.Metrics
	Logger  *slog.Logger
	Sealer  *output.Sealer // seals the cursors of lists
	Version string         // told by /v1/info
	OpenAPI []byte         // served as /openapi.yaml

	// Tokens are the API tokens without which nobody is served (closed mode); nil:
	// anybody is (open mode).
	Tokens *auth.Tokens

	// PeerCheck says whether the other end of an accepted connection may be one
	// of our own commands, and why. It is asked once a connection, at its first
	// request, in open mode only. Without it every connection is refused there.
	PeerCheck func(net.Conn) (command bool, reason string)

	// Ready returns the reasons why the service should get no work; none: it is ready.
	Ready func() []string

	AllowedHosts   []string // names, with or without a port, besides loopback ones; empty: none, in closed mode any
	AllowedOrigins []string // scheme://host[:port], besides a request's own host, or in closed mode "*"; may be empty
	MaxBodyBytes   int64    // largest body; 0: 8 MiB
}

// Server answers the REST API. Use [New].
type Server struct {
	o            Options
	log          *slog.Logger
	router       *chi.Mux
	hosts        hostList
	origins      originList
	largeBodies  chan struct{} // a place for each large body in memory
	largeAnswers chan struct{} // and for each large answer

	bodyTimeout  time.Duration
	placeTimeout time.Duration
	clientPoll   time.Duration
}

// New returns a Server. It starts nothing.
func New(o Options) *Server {
	if o.MaxBodyBytes == 0 {
		o.MaxBodyBytes = defaultMaxBody
	}
	s := &Server{
		o:            o,
		log:          o.Logger,
		hosts:        newHostList(o.AllowedHosts),
		origins:      newOrigins(o.AllowedOrigins, o.Tokens != nil),
		largeBodies:  make(chan struct{}, largeBodies),
		largeAnswers: make(chan struct{}, largeAnswers),

		bodyTimeout:  bodyTimeout,
		placeTimeout: placeTimeout,
		clientPoll:   clientPollEvery,
	}
	s.router = s.routes()
	return s
}

// Handler returns the API without a server around it. In open mode it answers
// 403 to whatever did not come through [Server.ConnContext].
func (s *Server) Handler() http.Handler { return s.router }

// HTTPServer returns a server that is ready to Serve any listener: HTTP/1 and
// unencrypted HTTP/2, bounded headers, and no bound on how long an answer may
// take, since a run may take minutes. The caller shuts it down.
func (s *Server) HTTPServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:                      s.Handler(),
		ConnContext:                  s.ConnContext,
		Protocols:                    &protocols,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		DisableGeneralOptionsHandler: true, // "OPTIONS *" passes our checks like everything else
	}
}
