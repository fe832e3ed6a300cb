package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"bashd/internal/exec"
)

// The codes that are the transport's own, besides those of package exec.
const (
	codeUnauthenticated      exec.Code = "UNAUTHENTICATED"
	codeForbidden            exec.Code = "FORBIDDEN"
	codeMethodNotAllowed     exec.Code = "METHOD_NOT_ALLOWED"
	codeRangeNotSatisfiable  exec.Code = "RANGE_NOT_SATISFIABLE"
	codeBodyTooLarge         exec.Code = "BODY_TOO_LARGE"
	codeUnsupportedMediaType exec.Code = "UNSUPPORTED_MEDIA_TYPE"
)

// problemKinds is the one place where a code gets its status.
var problemKinds = map[exec.Code]struct {
	status int
	title  string
}{
	exec.CodeInvalidArgument:    {http.StatusBadRequest, "The request is not valid"},
	codeUnauthenticated:         {http.StatusUnauthorized, "Authentication is required"},
	codeForbidden:               {http.StatusForbidden, "This caller may not do this"},
	exec.CodeModeNotAllowed:     {http.StatusForbidden, "The sandbox mode is wider than allowed"},
	exec.CodeNotFound:           {http.StatusNotFound, "There is no such thing"},
	codeMethodNotAllowed:        {http.StatusMethodNotAllowed, "The path does not answer this method"},
	exec.CodeConflict:           {http.StatusConflict, "The request does not fit what is there"},
	exec.CodeGone:               {http.StatusGone, "The complete stream is gone"},
	codeRangeNotSatisfiable:     {http.StatusRequestedRangeNotSatisfiable, "The range lies outside the stream"},
	codeBodyTooLarge:            {http.StatusRequestEntityTooLarge, "The body is too large"},
	codeUnsupportedMediaType:    {http.StatusUnsupportedMediaType, "The body is not JSON"},
	exec.CodeWorkdirUnusable:    {http.StatusUnprocessableEntity, "The working directory cannot be used"},
	exec.CodeLimitReached:       {http.StatusTooManyRequests, "A limit is reached"},
	exec.CodeInternal:           {http.StatusInternalServerError, "Internal error"},
	exec.CodeSandboxUnavailable: {http.StatusServiceUnavailable, "The sandbox cannot confine the command"},
	exec.CodeStartFailed:        {http.StatusServiceUnavailable, "The command cannot be started"},
	exec.CodeShuttingDown:       {http.StatusServiceUnavailable, "The server is shutting down"},
}

// problemBody is RFC 9457's object with our extensions.
type problemBody struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Detail    string         `json:"detail"`
	Code      exec.Code      `json:"code"`
	RequestID string         `json:"requestId"`
	Errors    []problemField `json:"errors,omitempty"`
	Kind      string         `json:"kind,omitempty"`
}

type problemField struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// problem answers err. What is not for the caller is logged, once and here.
func (s *Server) problem(w http.ResponseWriter, r *http.Request, err error) {
	e := s.classify(r.Context(), err)
	kind := problemKinds[e.Code]
	s.o.Metrics.Rejected(string(e.Code))
	waitingHelps := e.Code == exec.CodeLimitReached || e.Code == exec.CodeShuttingDown || e.Code == exec.CodeConflict && e.RetryAfter > 0
	if waitingHelps {
		w.Header().Set("Retry-After", retryAfter(e.RetryAfter))
	}
	body := problemBody{
		Type:      "urn:bashd:problem:" + string(e.Code),
		Title:     kind.title,
		Status:    kind.status,
		Detail:    e.Message,
		Code:      e.Code,
		RequestID: stateOf(r).id,
		Kind:      e.Kind,
	}
	for _, f := range e.Fields {
		body.Errors = append(body.Errors, problemField(f))
	}
	writeJSON(w, kind.status, "application/problem+json", body)
}

// classify returns err as an error whose code has a status and whose message
// the caller may read. Whatever else it is becomes INTERNAL without details.
func (s *Server) classify(ctx context.Context, err error) *exec.Error {
	e, ok := errors.AsType[*exec.Error](err)
	if ok {
		_, ok = problemKinds[e.Code]
	}
	if !ok || e.Code == exec.CodeInternal {
		s.log.LogAttrs(ctx, slog.LevelError, "internal error", requestIDAttr(ctx), slog.Any("error", err))
		return &exec.Error{Code: exec.CodeInternal, Message: "an internal error; the server's log has it under this request id"}
	}
	if e.Err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "request refused", requestIDAttr(ctx), slog.String("code", string(e.Code)), slog.Any("error", e.Err))
	}
	return e
}

// retryAfter is d in whole seconds, rounded up, and at least one.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
