package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"bashd/internal/exec"
)

// TestTimeout: integers however they are written, never wrapped, never guessed.
func TestTimeout(t *testing.T) {
	const most = time.Duration(math.MaxInt64/1_000_000) * time.Millisecond
	for literal, want := range map[string]time.Duration{
		"1": time.Millisecond, "1000": time.Second, "1e3": time.Second, "1000.0": time.Second, "1E+3": time.Second, "10000e-1": time.Second,
		"0.1e1": time.Millisecond, "100000000000000000000e-20": time.Millisecond,
		"2147483648": 2147483648 * time.Millisecond, "4294967297": 4294967297 * time.Millisecond,
		"9007199254740993": most, "9223372036854775807": most, "9223372036854775808": most, "18446744073709551617": most,
		"1e308": most, "1e999999999": most, "1e99999999999999999999": most, strings.Repeat("9", 1000): most,
	} {
		r, err := decodeRun([]byte(`{"command":"x","timeoutMs":` + literal + `}`))
		if err != nil || r.Timeout == nil || *r.Timeout != want {
			t.Errorf("%.40s: %v %v, want %v", literal, r.Timeout, err, want)
		}
		if r, err := decodeRun([]byte(`{"command":"x","yieldAfterMs":` + literal + `}`)); err != nil || r.YieldAfter != want {
			t.Errorf("yieldAfterMs %.40s: %v %v, want %v", literal, r.YieldAfter, err, want)
		}
		if r, err := decodeTask([]byte(`{"command":"x","timeoutMs":` + literal + `}`)); err != nil || r.Timeout == nil || *r.Timeout != want {
			t.Errorf("of a task: %.40s: %v %v, want %v", literal, r.Timeout, err, want)
		}
	}
	for _, literal := range []string{
		"0", "-0", "-1", "1.5", "1e-9", "0.0", "0e99999999999999999999", "1e-99999999999999999999", "-1e308", "-1e999999999", `"1000"`, "null",
		"true", "[]", "{}", "NaN", "Infinity", "01", "+1", "0x10", "1_000", ".5", "1.",
	} {
		if r, err := decodeRun([]byte(`{"command":"x","timeoutMs":` + literal + `}`)); err == nil {
			t.Errorf("%s: %v", literal, *r.Timeout)
		}
		if r, err := decodeRun([]byte(`{"command":"x","yieldAfterMs":` + literal + `}`)); err == nil {
			t.Errorf("yieldAfterMs %s: %v", literal, r.YieldAfter)
		}
	}
}

func TestBoundsOfFields(t *testing.T) {
	for name, body := range map[string]string{
		"command":     `{"command":"%s"}`,
		"description": `{"command":"x","description":"%s"}`,
		"workdir":     `{"command":"x","workdir":"%s"}`,
		"env.A":       `{"command":"x","env":{"A":"%s"}}`,
	} {
		limit := map[string]int{"command": exec.MaxCommandBytes, "description": exec.MaxDescription, "workdir": exec.MaxWorkdirBytes, "env.A": exec.MaxEnvEntry - 2}[name]
		if _, err := decodeRun(fmt.Appendf(nil, body, strings.Repeat("x", limit))); err != nil {
			t.Errorf("%s of %d: %v", name, limit, err)
		}
		if _, err := decodeRun(fmt.Appendf(nil, body, strings.Repeat("x", limit+1))); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s of %d: %v", name, limit+1, err)
		}
	}
}

// TestErrorsAreBounded: a flood of wrong fields gets a short answer, in a fixed order.
func TestErrorsAreBounded(t *testing.T) {
	start := time.Now()
	var b strings.Builder
	b.WriteString(`{"command":"x"`)
	for i := range 200_000 {
		fmt.Fprintf(&b, `,"f%d":1`, i)
	}
	b.WriteString("}")
	_, err := decodeRun([]byte(b.String()))
	e, ok := err.(*exec.Error)
	if !ok || len(e.Fields) != maxFieldErrors {
		t.Fatalf("%v", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
}

// TestErrorsTellNoValues: stdin and env values never come back.
func TestErrorsTellNoValues(t *testing.T) {
	for _, body := range []string{
		`{"command":"x","stdin":"SECRET","stdinBase64":"SECRET"}`, `{"command":"x","stdinBase64":"SECRET!"}`,
		`{"command":"x","env":{"A":"SECRET\u0000"}}`, `{"command":"x","env":{"1":"SECRET"}}`, `{"command":"x","env":"SECRET"}`,
		`{"command":"x","stdin":["SECRET"]}`, `{"command":"x","stdin":"SECRET`,
	} {
		for _, decode := range []func([]byte) (exec.Request, error){decodeRun, decodeTask} {
			_, err := decode([]byte(body))
			if err == nil || strings.Contains(fmt.Sprintf("%+v", err), "SECRET") {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
	for _, body := range []string{`{"data":"SECRET","dataBase64":"SECRET"}`, `{"dataBase64":"SECRET!"}`, `{"data":["SECRET"]}`, `{"data":"SECRET`} {
		_, err := decodeStdin([]byte(body))
		if err == nil || strings.Contains(fmt.Sprintf("%+v", err), "SECRET") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestSurrogatePairsAreText(t *testing.T) {
	r, err := decodeRun([]byte(`{"command":"\ud83d\ude00 \\ud800 \"\\\ud83D\uDE00"}`))
	if err != nil || r.Command != `😀 \ud800 "\😀` {
		t.Errorf("%q %v", r.Command, err)
	}
}

// encodeRequest writes a request as a client would.
func encodeRequest(t *testing.T, r exec.Request) []byte {
	m := map[string]any{"command": r.Command}
	for name, v := range map[string]string{"description": r.Description, "workdir": r.Workdir, "sandboxMode": string(r.SandboxMode), "outputEncoding": string(r.Encoding)} {
		if v != "" {
			m[name] = v
		}
	}
	if r.Timeout != nil {
		m["timeoutMs"] = r.Timeout.Milliseconds()
	}
	if r.HasStdin {
		m["stdinBase64"] = base64.StdEncoding.EncodeToString(r.Stdin)
	}
	if r.Env != nil {
		m["env"] = r.Env
	}
	if r.StdoutMaxBytes > 0 {
		m["stdoutMaxBytes"] = r.StdoutMaxBytes
	}
	if r.MergeStderr {
		m["mergeStderr"] = true
	}
	if r.YieldAfter > 0 {
		m["yieldAfterMs"] = r.YieldAfter.Milliseconds()
	}
	if r.StdinOpen {
		m["stdinOpen"] = true
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzDecode is about both ways to start a command.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"command":"id"}`, `{"command":"cat","stdin":"a","timeoutMs":1e3,"env":{"A":"1"},"mergeStderr":true}`,
		`{"command":"x","stdinBase64":"YQ==","sandboxMode":"read-only","outputEncoding":"base64","stdoutMaxBytes":1}`,
		`{"command":"\ud83d\ude00","workdir":"/w","description":"d"}`, `{"command":"\ud800"}`, `{"command":"a","command":"b"}`, `[]`, `{`, `null`,
		"\xff\xfe", `{"command":"x"}{}`, `{"a":{"a":{"a":[[[]]]}}}`, `{"command":"x","timeoutMs":1e999999999}`, "\"\\", `{"\u0`, `{"command":"\ud800\u`,
		` {"command":"x"} `, ` null `, `{"command":"x","yieldAfterMs":1e999}`, `{"command":"x","stdinOpen":true,"stdin":""}`, `{"command":"x","session":"s"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for name, decode := range map[string]func([]byte) (exec.Request, error){"run": decodeRun, "task": decodeTask} {
			r, err := decode(body)
			if err != nil {
				wantInvalid(t, err)
				continue
			}
			if !json.Valid(body) || strings.TrimSpace(r.Command) == "" || strings.ContainsRune(r.Command, 0) || r.Timeout != nil && *r.Timeout < time.Millisecond ||
				r.Key != nil || r.Session != "" || name == "run" && r.StdinOpen || name == "task" && r.YieldAfter != 0 {
				t.Fatalf("%s: accepted %q as %+v", name, body, r)
			}
			again, err := decode(encodeRequest(t, r))
			if err != nil || !sameRequest(r, again) {
				t.Fatalf("%s: %q: %+v, then %+v, %v", name, body, r, again, err)
			}
		}
	})
}

// wantInvalid fails unless err is one that tells the caller which field is wrong.
func wantInvalid(t *testing.T, err error) {
	t.Helper()
	e, ok := err.(*exec.Error)
	if !ok || e.Code != exec.CodeInvalidArgument || len(e.Fields) == 0 || !utf8.ValidString(e.Message) {
		t.Fatalf("%#v", err)
	}
}

func FuzzDecodeStdin(f *testing.F) {
	for _, seed := range []string{
		`{"data":"a\u0000"}`, `{"dataBase64":"/wA=\n","close":true}`, `{"close":true}`, `{}`, `{"data":"a","dataBase64":""}`, `{"data":"\ud800"}`, `[]`, ``,
		`{"close":false}`, `{"data":null}`, `{"close":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := decodeStdin(body)
		if err != nil {
			wantInvalid(t, err)
			return
		}
		var fields map[string]any
		if err := json.Unmarshal(body, &fields); err != nil {
			t.Fatalf("accepted %q", body)
		}
		text, hasText := fields["data"].(string)
		_, hasRaw := fields["dataBase64"].(string)
		end, _ := fields["close"].(bool)
		if in.end != end || hasText && hasRaw || !hasText && !hasRaw && (!end || len(in.data) > 0) || hasText && string(in.data) != text {
			t.Fatalf("accepted %q as %+v", body, in)
		}
	})
}

func sameRequest(a, b exec.Request) bool {
	if a.HasStdin != b.HasStdin || string(a.Stdin) != string(b.Stdin) {
		return false
	}
	a.Stdin, b.Stdin = nil, nil
	return reflect.DeepEqual(a, b)
}

// FuzzJSONInteger compares with exact arithmetic, for exponents that it can hold.
func FuzzJSONInteger(f *testing.F) {
	for _, seed := range []string{"0", "-0", "1", "1.0", "1e3", "1.5", "15e-1", "150e-1", "-12.50e2", "9223372036854775807", "9223372036854775808", "1e18", "1e19", "0.00001e5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, literal string) {
		if !json.Valid([]byte(literal)) || kindOf(json.RawMessage(literal)) != "number" || len(literal) > 100 {
			return
		}
		if i := strings.IndexAny(literal, "eE"); i >= 0 && len(literal)-i > 5 {
			return
		}
		exact, ok := new(big.Rat).SetString(literal)
		if !ok {
			return
		}
		n, isInt := jsonInteger(literal)
		if isInt != exact.IsInt() {
			t.Fatalf("%s: integer %v", literal, isInt)
		}
		if !isInt {
			return
		}
		want := exact.Num()
		if want.CmpAbs(big.NewInt(1_000_000_000_000_000_000)) >= 0 { // beyond 18 digits
			if (n < 0) != (want.Sign() < 0) || max(n, -n) < 1_000_000_000_000_000_000 {
				t.Fatalf("%s: %d", literal, n)
			}
			return
		}
		if want.Int64() != n {
			t.Fatalf("%s: %d", literal, n)
		}
	})
}

func BenchmarkDecodeRun(b *testing.B) {
	body := []byte(`{"command":"echo hi","timeoutMs":1000,"env":{"A":"1"},"sandboxMode":"read-only"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeRun(body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeLarge has the largest body of all.
func BenchmarkDecodeLarge(b *testing.B) {
	body := []byte(`{"command":"cat","stdin":"` + strings.Repeat("x", 8<<20-100) + `"}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := decodeRun(body); err != nil {
			b.Fatal(err)
		}
	}
}
