package denial

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// TestHangingLookup: Classify returns although a look-up does not, and many of
// them do not pile up threads.
func TestHangingLookup(t *testing.T) {
	a := newArena(t)
	release := make(chan struct{})
	e := a.evidence(1, "touch: cannot touch '"+a.out+"/n': Permission denied", true)
	e.Forbidden = func(string, Op) bool { <-release; return true }
	answers := make(chan bool)
	start := time.Now()
	const calls = 2 * maxProbes
	for range calls {
		go func() {
			_, denied := Classify(e)
			answers <- denied
		}()
	}
	for range calls {
		if <-answers {
			t.Error("a denial without an answer of the policy")
		}
	}
	if took := time.Since(start); took > 10*maxTime {
		t.Errorf("took %v", took)
	}
	if n := len(slots); n != maxProbes {
		t.Errorf("%d threads are held, want %d", n, maxProbes)
	}
	close(release)
	e.Forbidden = func(string, Op) bool { return true }
	if _, denied := Classify(e); !denied {
		t.Error("no denial after the look-ups came back")
	}
}

// hostile are outputs made to cost time: about 1 MiB each, in one line or in
// lines as long as are looked at.
func hostile() map[string]string {
	const (
		size      = 1 << 20
		signature = ": Permission denied\n"
	)
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	lines := func(s string) string {
		return fill(strings.Repeat(s, (maxLine-len(signature))/len(s)) + signature)
	}
	return map[string]string{
		"one line":        fill("x") + signature,
		"long lines":      lines("x"),
		"colons":          lines(": "),
		"quotes":          lines("'"),
		"open quotes":     lines(" '"),
		"shell quotes":    lines(`'a'$'`),
		"shell escapes":   lines(`'a'$'\'\' `),
		"double quotes":   lines(` "\`),
		"typographic":     lines(" ‘«„"),
		"phrases":         lines("Permission denied: "),
		"short lines":     fill("touch: cannot touch '/x/y'" + signature),
		"deep paths":      fill("tee: " + strings.Repeat("/x", 1000) + signature),
		"dots":            fill("tee: " + strings.Repeat("/..", 1000) + signature),
		"NUL and invalid": fill("\x00\xff'\x80" + signature),
	}
}

func TestHostileOutputIsQuick(t *testing.T) {
	a := newArena(t)
	for name, stderr := range hostile() {
		start := time.Now()
		Classify(a.evidence(1, stderr, false))
		if took := time.Since(start); took > 2*time.Second { // some 10 ms where nothing else runs
			t.Errorf("%s: took %v", name, took)
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, s := range hostile() {
		f.Add(s[len(s)-min(len(s), 200):], 1)
	}
	f.Add("touch: cannot touch 'OUT/a'$'\\n''b': Permission denied\n", 1)
	f.Add("mv: cannot move 'OUT/f' to \"OUT/n\": Permission denied", 1)
	f.Add("t.sh: 第 1 行：cd: OUT/n: 权限不够\n", 126)
	f.Add("PermissionError: [Errno 13] Permission denied: 'OUT/f' -> 'OUT/\\xfcn'", 2)
	f.Add("Error: EACCES: permission denied, rename 'OUT/f' -> 'OUT/n'", 2)
	f.Add("sh: 1: cannot create OUT/n: Permission denied", 2)
	f.Add("mkdir: impossible de créer le répertoire «\u00a0OUT/n\u00a0»: Opération non permise", 2)
	base := f.TempDir()
	must(f, os.Mkdir(filepath.Join(base, "out"), 0o755))
	must(f, os.WriteFile(filepath.Join(base, "out/f"), nil, 0o644))
	self := Cred{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	if groups, err := os.Getgroups(); err == nil {
		for _, g := range groups {
			self.Groups = append(self.Groups, uint32(g))
		}
	}
	f.Fuzz(func(t *testing.T, stderr string, code int) {
		stderr = strings.ReplaceAll(stderr, "OUT", base+"/out")
		d, denied := Classify(Evidence{
			ExitCode: code, Stderr: []byte(stderr), Workdir: base, Cred: self,
			Errnos: []syscall.Errno{syscall.EACCES, syscall.EROFS, syscall.EPERM},
			Forbidden: func(p string, op Op) bool {
				if !filepath.IsAbs(p) || filepath.Clean(p) != p || strings.Contains(p, "\x00") {
					t.Errorf("the policy is asked about %q", p)
				}
				return op != Read
			},
		})
		if !denied {
			return
		}
		if code == 0 || !filepath.IsAbs(d.Path) || filepath.Clean(d.Path) != d.Path {
			t.Errorf("exit code %d, path %q", code, d.Path)
		}
		if !utf8.ValidString(d.Evidence) || len(d.Evidence) > maxEvidence+150 || strings.ContainsFunc(d.Evidence, func(r rune) bool { return r < ' ' }) {
			t.Errorf("evidence %q", d.Evidence)
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	self := Cred{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	cases := hostile()
	cases["denial"] = "touch: cannot touch '" + b.TempDir() + "/n': Permission denied\n"
	cases["no signature, 64 KiB"] = strings.Repeat("an ordinary line of a compiler\n", maxTail/31)
	for name, stderr := range cases {
		b.Run(name, func(b *testing.B) {
			e := Evidence{
				ExitCode: 1, Stderr: []byte(stderr), Workdir: "/", Cred: self,
				Errnos:    []syscall.Errno{syscall.EACCES},
				Forbidden: func(string, Op) bool { return true },
			}
			for b.Loop() {
				Classify(e)
			}
		})
	}
}
