package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"bashd/internal/exec"
)

// routes is every route and what a request passes on its way there.
func (s *Server) routes() *chi.Mux {
	r := chi.NewRouter()
	r.Use(s.observe, s.recoverPanics, commonHeaders)
	if !s.closed() {
		r.Use(s.refuseCommands, s.refuseForwarded)
	}
	r.Use(s.checkHost, s.checkOrigin)
	r.NotFound(s.guarded(s.notFound))
	r.MethodNotAllowed(s.guarded(s.methodNotAllowed))

	get(r, "/healthz", s.handle(s.healthz))
	get(r, "/readyz", s.handle(s.readyz))
	get(r.With(s.needsMetrics), "/metrics", s.o.Metrics.Handler().ServeHTTP)
	get(r, "/openapi.yaml", s.handle(s.openAPI))

	r.Group(func(r chi.Router) {
		r.Use(s.identify)
		get(r, "/v1/info", s.handle(s.info))
		r.Post("/v1/runs", handleKeyed(s, decodeRun, s.createRun))
		get(r, "/v1/runs", s.handle(s.listRuns, "status", "limit", "cursor"))
		get(r, "/v1/runs/{id}", s.handle(s.getRun))
		r.Post("/v1/runs/{id}/kill", handleBody(s, decodeKill, s.killRun))
		get(r, "/v1/runs/{id}/streams/{stream}", s.handle(s.runStream))

		r.Post("/v1/tasks", handleKeyed(s, decodeTask, s.createTask))
		get(r, "/v1/tasks", s.handle(s.listTasks, "status", "session", "limit", "cursor"))
		get(r, "/v1/tasks/{id}", s.handle(s.getTask))
		r.Delete("/v1/tasks/{id}", s.handle(s.deleteTask))
		get(r, "/v1/tasks/{id}/output", s.handle(s.readTaskOutput, "cursor", "waitMs", "maxBytes"))
		r.Post("/v1/tasks/{id}/read", handleBody(s, decodeNothing, s.consumeTaskOutput))
		get(r, "/v1/tasks/{id}/wait", s.handle(s.waitTask, "timeoutMs"))
		r.Post("/v1/tasks/{id}/kill", handleBody(s, decodeKill, s.killTask))
		r.Post("/v1/tasks/{id}/stdin", handleBody(s, decodeStdin, s.writeTaskStdin))
		get(r, "/v1/tasks/{id}/streams/{stream}", s.handle(s.taskStream))
	})
	return r
}

// get routes GET and HEAD; net/http leaves out the body of the latter.
func get(r chi.Router, pattern string, h http.HandlerFunc) {
	r.Get(pattern, h)
	r.Head(pattern, h)
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.problem(w, r, &exec.Error{Code: exec.CodeNotFound, Message: "there is nothing at this path; GET /openapi.yaml lists what there is"})
}

// methodNotAllowed answers 405, or 404 where the path has no method at all
// (the router asks here for any method it has not heard of).
func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	allow := s.allowed(r)
	if len(allow) == 0 {
		s.notFound(w, r)
		return
	}
	list := strings.Join(allow, ", ")
	w.Header().Set("Allow", list)
	s.problem(w, r, &exec.Error{Code: codeMethodNotAllowed, Message: "this path answers " + list})
}

func (s *Server) allowed(r *http.Request) []string {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}
	return slices.DeleteFunc(methods, func(m string) bool {
		return !s.router.Match(chi.NewRouteContext(), m, path)
	})
}
