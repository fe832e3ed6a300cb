package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"bashd/internal/exec"
)

// readBody reads and decodes the body of r. A body beyond the limit is refused
// as early as that is known and never held in memory; one that comes too
// slowly is given up. At most largeBodies large ones are in memory at once.
func readBody[T any](s *Server, w http.ResponseWriter, r *http.Request, decode func([]byte) (T, error)) (in T, err error) {
	if err := checkContentType(r); err != nil {
		return in, err
	}
	if r.ContentLength > s.o.MaxBodyBytes {
		w.Header().Set("Connection", "close") // what is still coming is not worth reading
		return in, s.bodyTooLarge()
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(s.bodyTimeout)) // unsupported only without a connection, as in a test
	body, release, err := s.loadBody(r.Context(), http.MaxBytesReader(w, r.Body, s.o.MaxBodyBytes), r.ContentLength)
	defer release()
	if err != nil {
		w.Header().Set("Connection", "close")
		return in, s.bodyError(err)
	}
	_ = control.SetReadDeadline(time.Time{}) // from here on a read only waits for the client to go away
	if len(body) > 0 && r.Header.Get("Content-Type") == "" {
		return in, errNotJSON
	}
	return decode(body)
}

// loadBody reads src to its end. It takes a place among the large bodies only
// once a body has turned out to be one; release gives it back.
func (s *Server) loadBody(ctx context.Context, src io.Reader, length int64) (body []byte, release func(), err error) {
	release = func() {}
	body, err = io.ReadAll(io.LimitReader(src, smallBody+1))
	if err != nil || len(body) <= smallBody {
		return body, release, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.placeTimeout, errBusy)
	defer cancel()
	select {
	case s.largeBodies <- struct{}{}:
		release = func() { <-s.largeBodies }
	case <-ctx.Done():
		return nil, release, context.Cause(ctx)
	}
	// ReadFrom wants bytes.MinRead of room to find the end without growing.
	b := bytes.NewBuffer(make([]byte, 0, max(length, 2*smallBody)+bytes.MinRead))
	b.Write(body)
	_, err = b.ReadFrom(src)
	return b.Bytes(), release, err
}

var (
	errBusy = &exec.Error{Code: exec.CodeLimitReached, Message: fmt.Sprintf(
		"too many bodies beyond %d bytes are being read (limit: %d); send it again later", smallBody, largeBodies)}
	errNotJSON = &exec.Error{Code: codeUnsupportedMediaType, Message: "the body must be JSON, declared as Content-Type: application/json and not compressed"}
)

func (s *Server) bodyTooLarge() error {
	return &exec.Error{Code: codeBodyTooLarge, Message: fmt.Sprintf("the body is larger than %d bytes", s.o.MaxBodyBytes)}
}

func (s *Server) bodyError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return s.bodyTooLarge()
	}
	if _, ok := errors.AsType[*exec.Error](err); ok {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return invalid("body", fmt.Sprintf("did not arrive within %d s", int(s.bodyTimeout.Seconds())))
	}
	return invalid("body", "could not be read to its end")
}

// checkContentType refuses what is declared to be something else than plain
// JSON. A request without a body needs no type; whether there is one is known
// only later where no length is given.
func checkContentType(r *http.Request) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return errNotJSON
	}
	value := strings.Join(r.Header.Values("Content-Type"), ", ")
	if value == "" {
		if r.ContentLength > 0 {
			return errNotJSON
		}
		return nil
	}
	mediaType, params, err := mime.ParseMediaType(value)
	if err != nil || mediaType != "application/json" {
		return errNotJSON
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return errNotJSON
	}
	return nil
}
