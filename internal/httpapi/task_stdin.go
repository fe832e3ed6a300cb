package httpapi

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

type stdinRequest struct {
	data []byte
	end  bool
}

type stdinBody struct {
	Written int `json:"written"`
}

// decodeStdin decodes the body of a write to stdin: text or bytes, the end of it, or both.
func decodeStdin(body []byte) (in stdinRequest, err error) {
	var text, raw []byte
	given := make(map[string]bool)
	fields := marked(map[string]decoder{"data": textBytes(&text), "dataBase64": base64Bytes(&raw), "close": boolValue(&in.end)}, given)
	var errs fieldErrors
	if err := decodeObject(body, fields, &errs); err != nil {
		return stdinRequest{}, err
	}
	switch hasText, hasRaw := given["data"], given["dataBase64"]; {
	case hasText && hasRaw:
		errs.add("dataBase64", "must not be given together with data")
	case hasRaw:
		in.data = raw
	case hasText:
		in.data = text
	case !in.end && len(errs.list) == 0:
		errs.add("data", "is required, as data or as dataBase64, unless close is true")
	}
	return in, errs.err()
}

// writeTaskStdin is POST /v1/tasks/{id}/stdin. A command that does not read keeps it waiting while
// the client is there.
func (s *Server) writeTaskStdin(r *http.Request, in stdinRequest) (reply, error) {
	ctx, stop := s.watchClient(r)
	defer stop()
	written, err := s.o.Runner.WriteStdin(ctx, stateOf(r).caller, chi.URLParam(r, "id"), in.data, in.end)
	if err != nil {
		return nil, err
	}
	return asJSON(http.StatusOK, stdinBody{written}), nil
}
