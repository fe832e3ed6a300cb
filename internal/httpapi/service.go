package httpapi

import "net/http"

type healthBody struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
}

// healthz is GET /healthz: the process answers.
func (s *Server) healthz(*http.Request) (reply, error) {
	return asJSON(http.StatusOK, healthBody{Status: "ok"}), nil
}

// readyz is GET /readyz: whether to send work here.
func (s *Server) readyz(*http.Request) (reply, error) {
	if reasons := s.o.Ready(); len(reasons) > 0 {
		return asJSON(http.StatusServiceUnavailable, healthBody{Status: "unready", Reasons: reasons}), nil
	}
	return asJSON(http.StatusOK, healthBody{Status: "ready"}), nil
}

// openAPI is GET /openapi.yaml.
func (s *Server) openAPI(*http.Request) (reply, error) {
	return asBytes("application/yaml", s.o.OpenAPI), nil
}
