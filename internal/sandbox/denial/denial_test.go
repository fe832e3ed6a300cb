package denial

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMessages reads messages as programs of several languages wrote them,
// with OUT for the directory outside and the file's name n.
func TestMessages(t *testing.T) {
	lines := []string{
		"bash: OUT/n: Permission denied",
		"./t.sh: line 3: OUT/n: Permission denied",
		"bash: line 1: ../out/n: Permission denied\r",
		"bash: Zeile 1: OUT/n: Keine Berechtigung",
		"t.sh: ligne 1: OUT/n: Permission non accordée",
		"t.sh: ligne 1 : OUT/n: Permission non accordée",
		"t.sh: 1. satır: OUT/n: Erişim engellendi",
		"t.sh: 第 1 行：OUT/n: 权限不够",
		"sh: 1: cannot create OUT/n: Permission denied",
		"sh: can't create OUT/n: Permission denied",
		"touch: OUT/n: Permission denied",
		"mkdir: can't create directory 'OUT/n': Permission denied",
		"zsh: permission denied: OUT/n",
		"mv: cannot move 'OUT/f' to 'OUT/n': Permission denied",
		"mv: das Verschieben von 'OUT/f' nach 'OUT/n' ist nicht möglich: Keine Berechtigung",
		"mv: 'OUT/f', 'OUT/n' konumuna taşınamadı: Erişim engellendi",
		"mv: 'OUT/f' から 'OUT/n' へ移動できません: 許可がありません",
		"ln: failed to create hard link 'OUT/n' => 'OUT/f': Permission denied",
		"ln: failed to create hard link 'OUT/n' => 'OUT/f': Operation not permitted",
		"ln: misslyckades att skapa hård länk 'OUT/n' ⇒ 'OUT/f': Operationen inte tillåten",
		"ln: failed to create symbolic link 'OUT/n' -> 'gone': Permission denied",
		"mkdir: das Verzeichnis „OUT/n“ kann nicht angelegt werden: Keine Berechtigung",
		"mkdir: impossible de créer le répertoire « OUT/n »: Permission non accordée",
		"mkdir: ディレクトリ `OUT/n' を作成できません: 許可がありません",
		"mkdir: nie można utworzyć katalogu „OUT/n”: Brak dostępu",
		"mkdir: kan inte skapa katalog ”OUT/n”: Åtkomst nekas",
		"mkdir: невозможно создать каталог «OUT/n»: Отказано в доступе",
		"touch: `touch' 'OUT/n' yapılamadı: Erişim engellendi",
		"touch: impossibile fare touch di \"OUT/n\": Permesso negato",
		"touch: no se puede efectuar 'touch' sobre 'OUT/n': Permiso denegado",
		"sed: couldn't open temporary file OUT/n: Permission denied",
		"sed: Temporäre Datei OUT/n kann nicht geöffnet werden: Keine Berechtigung",
		"tar: OUT/n: Cannot open: Permission denied",
		"tar: OUT/n: funzione \"open\" non riuscita: Permesso negato",
		"fatal: cannot mkdir OUT/n: Permission denied",
		"fatal: Unable to create 'OUT/n': Permission denied",
		"fatal: could not create work tree dir 'OUT/n': Permission denied",
		"fatal: could not create leading directories of 'OUT/n': Permission denied",
		"error: unable to create file OUT/n: Permission denied",
		"error: could not lock config file OUT/n: Permission denied",
		"fatal : impossible de créer le répertoire (mkdir) OUT/n: Permission non accordée",
		"PermissionError: [Errno 13] Permission denied: 'OUT/n'",
		"PermissionError: [Errno 13] Permission denied: \"OUT/n\"",
		"PermissionError: [Errno 13] Permission denied: 'OUT/f' -> 'OUT/n'",
		"ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: 'OUT/n'",
		"Error: EACCES: permission denied, open 'OUT/n'",
		"Error: EACCES: permission denied, rename 'OUT/f' -> 'OUT/n'",
		"npm ERR! Error: EACCES: permission denied, mkdir 'OUT/n'",
		"open OUT/n: permission denied",
		"2026/01/02 03:04:05 open OUT/n: permission denied",
		"go: could not create module cache: mkdir OUT/n: permission denied",
		"rename OUT/f OUT/n: permission denied",
		"OUT/n: Permission denied at -e line 1.",
		"Traceback: Permission denied @ rb_sysopen - OUT/n (Errno::EACCES)",
		"awk: cannot open \"OUT/n\" for output (Permission denied)",
		"java.io.FileNotFoundException: OUT/n (Permission denied)",
		"rsync: mkstemp \"OUT/n\" failed: Permission denied (13)",
		"error: OUT/n: Permission denied (os error 13)",
		"/usr/bin/ld: cannot open output file OUT/n: Permission denied",
		"make: [Makefile:2] noise\nbash: line 1: OUT/n: Permission denied\nmake: *** [x] Error 1",
	}
	a := newArena(t)
	for _, line := range lines {
		stderr := strings.ReplaceAll(line, "OUT", a.out) + "\n"
		d, denied := Classify(a.evidence(1, stderr, true))
		if !denied {
			t.Errorf("no denial: %s", line)
			continue
		}
		if d.Path != filepath.Join(a.out, "n") && d.Path != filepath.Join(a.out, "f") {
			t.Errorf("path %q: %s", d.Path, line)
		}
		e := a.evidence(1, stderr, true)
		e.Forbidden = func(string, Op) bool { return false }
		if d, denied := Classify(e); denied {
			t.Errorf("denial %+v where nothing is forbidden: %s", d, line)
		}
		e = a.evidence(1, stderr, true)
		e.Errnos = []syscall.Errno{syscall.EROFS, syscall.EXDEV}
		if d, denied := Classify(e); denied {
			t.Errorf("denial %+v with an errno that this sandbox does not use: %s", d, line)
		}
	}
}

// TestTranslations: every text of the table is found, and each as its errno.
func TestTranslations(t *testing.T) {
	a := newArena(t)
	own := filepath.Join(a.out, "f")
	for _, tr := range translations {
		for errno, text := range map[syscall.Errno]string{
			syscall.EACCES: tr.eacces, syscall.EROFS: tr.erofs, syscall.EPERM: tr.eperm,
		} {
			for _, used := range []syscall.Errno{syscall.EACCES, syscall.EROFS, syscall.EPERM} {
				e := a.evidence(1, "bash: line 1: "+own+": "+text+"\n", true)
				e.Errnos = []syscall.Errno{used}
				if _, denied := Classify(e); denied != (used == errno) {
					t.Errorf("%q with %v: denied %v", text, used, denied)
				}
			}
		}
	}
}

func TestEndOfCommand(t *testing.T) {
	a := newArena(t)
	line := "touch: cannot touch '" + a.out + "/n': Permission denied\n"
	for _, tt := range []struct {
		name   string
		change func(*Evidence)
		want   bool
	}{
		{"failed", func(*Evidence) {}, true},
		{"clean exit", func(e *Evidence) { e.ExitCode = 0 }, false},
		{"signal", func(e *Evidence) { e.Signaled = true }, false},
		{"no policy", func(e *Evidence) { e.Forbidden = nil }, false},
		{"no errno", func(e *Evidence) { e.Errnos = nil }, false},
		{"no output", func(e *Evidence) { e.Stderr = nil }, false},
		{"unclear message, file not executed", func(e *Evidence) {
			e.ExitCode = 126
			e.Stderr = []byte("bash: line 1: " + a.out + "/f: Permission denied\n")
		}, false},
		{"clear message, then a file not executed", func(e *Evidence) { e.ExitCode = 126 }, true},
		{"pushed out of the tail", func(e *Evidence) {
			e.Stderr = append(e.Stderr, strings.Repeat("noise\n", maxTail/6)...)
		}, false},
		{"at the beginning of the tail", func(e *Evidence) {
			noise := strings.Repeat("\n", maxTail-len(e.Stderr))
			e.Stderr = append([]byte("before\n"), append(e.Stderr, noise...)...)
		}, true},
		{"cut by the beginning of the tail", func(e *Evidence) {
			noise := strings.Repeat("\n", maxTail-len(e.Stderr)+1)
			e.Stderr = append(e.Stderr, noise...)
		}, false},
		{"relative without a workdir", func(e *Evidence) {
			e.Workdir = ""
			e.Stderr = []byte("touch: cannot touch '../out/n': Permission denied\n")
		}, false},
		{"clean paths only reach the policy", func(e *Evidence) {
			forbidden := e.Forbidden
			e.Stderr = []byte("touch: cannot touch '" + a.ws + "/.././out//n/': Permission denied\n")
			e.Forbidden = func(p string, op Op) bool { return p == filepath.Clean(p) && forbidden(p, op) }
		}, true},
	} {
		e := a.evidence(1, line, true)
		tt.change(&e)
		if d, denied := Classify(e); denied != tt.want {
			t.Errorf("%s: denied %v, want %v: %+v", tt.name, denied, tt.want, d)
		}
	}
}

// TestOperations: each kind of operation is judged by its own permission.
func TestOperations(t *testing.T) {
	a := newArena(t)
	must(t, os.Mkdir(filepath.Join(a.out, "sticky"), 0o777))
	must(t, os.Chmod(filepath.Join(a.out, "sticky"), 0o777|os.ModeSticky))
	must(t, os.WriteFile(filepath.Join(a.out, "sticky/foreign"), nil, 0o666))
	must(t, os.Chmod(filepath.Join(a.out, "sticky/foreign"), 0o666))
	a.put(filepath.Join(a.out, "sticky/own"), "", 0o644)
	a.put(filepath.Join(a.out, "readonly"), "", 0o444)
	foreign := os.Getuid() == 0 // else the test owns all files itself
	for _, tt := range []struct {
		line string
		want bool
	}{
		{"rm: cannot remove 'OUT/readonly': Permission denied", true},
		{"tee: OUT/readonly: Permission denied", false},
		{"rm: cannot remove 'OUT/sticky/own': Operation not permitted", true},
		{"rm: cannot remove 'OUT/sticky/foreign': Operation not permitted", !foreign},
		{"ln: failed to create hard link 'OUT/n' => 'OUT/sticky/foreign': Operation not permitted", true},
		{"ln: failed to create hard link 'OUT/n' => '/etc/passwd': Operation not permitted", false},
		{"mv: cannot move 'OUT/f' to '/etc/n': Permission denied", false},
		{"mv: cannot move 'x' to 'OUT/n': Permission denied", true},
		{"chmod: changing permissions of 'OUT/readonly': Operation not permitted", true},
		{"chmod: changing permissions of 'OUT/sticky/foreign': Operation not permitted", !foreign},
		{"touch: setting times of 'OUT/f': Operation not permitted", true},
		{"cp: preserving times for 'OUT/f': Operation not permitted", true},
		{"chmod: Beim Setzen der Zugriffsrechte für 'OUT/f': Die Operation ist nicht erlaubt", true},
		{"chown: changing ownership of 'OUT/f': Operation not permitted", false},
		{"tar: OUT/f: Cannot change ownership to uid 0, gid 0: Operation not permitted", false},
		{"PermissionError: [Errno 1] Operation not permitted: 'OUT/f'", true},
		{"PermissionError: [Errno 1] Operation not permitted: 'OUT/n'", false},
		{"cat: OUT/f: Read-only file system", false}, // reading does not fail so
		{"touch: cannot touch 'OUT/n': Read-only file system", true},
		{"make: OUT/f: Permission denied", false},
		{"bash: line 1: OUT/f: /bin/false: bad interpreter: Permission denied", false},
		{"bash: line 1: /dev/tcp/127.0.0.1/80: Permission denied", false},
		{"touch: cannot touch '/proc/self/root/" + "OUT/n': Permission denied", false},
		{"bash: line 1: /dev/stderr: Permission denied", false},
		{"bash: line 1: /proc/1/oom_score_adj: Permission denied", false},
		{"touch: cannot touch 'OUT/f/n': Permission denied", false}, // a file is no directory
		{"touch: cannot touch 'OUT/gone/../n': Permission denied", false},
	} {
		e := a.evidence(1, strings.ReplaceAll(tt.line, "OUT", a.out), false)
		e.Errnos = append(e.Errnos, syscall.EROFS)
		if d, denied := Classify(e); denied != tt.want {
			t.Errorf("denied %v, want %v: %s %+v", denied, tt.want, tt.line, d)
		}
	}
}

// TestSymlinkLoop: resolution ends.
func TestSymlinkLoop(t *testing.T) {
	a := newArena(t)
	must(t, os.Symlink("b", filepath.Join(a.ws, "a")))
	must(t, os.Symlink("a", filepath.Join(a.ws, "b")))
	must(t, os.Symlink(strings.Repeat("w/", 100)+"w", filepath.Join(a.ws, "w")))
	must(t, os.Mkdir(filepath.Join(a.ws, "d"), 0o755))
	deep := strings.Repeat("d/../", maxSteps) + "n"
	for _, file := range []string{"a", "a/x", "w/x", deep, strings.Repeat("x", maxPathLen)} {
		if d, denied := Classify(a.evidence(1, "touch: cannot touch '"+file+"': Permission denied", false)); denied {
			t.Errorf("%.20s: denial %+v", file, d)
		}
	}
}

func TestEvidenceText(t *testing.T) {
	a := newArena(t)
	line := "touch: cannot touch '" + a.out + "/n': Permission denied"
	d, _ := Classify(a.evidence(1, line, true))
	want := fmt.Sprintf("%s [EACCES: write forbidden here by the mode, allowed to uid %d without the sandbox]", line, a.cred.UID)
	if d.Evidence != want {
		t.Errorf("evidence %q, want %q", d.Evidence, want)
	}
	for _, tt := range []struct{ in, want string }{
		{"plain 'ü' \\ \"\r\n", `plain 'ü' \ "`},
		{"\x1b[31mred\x00\x7f\u009b", `\x1b[31mred\x00\x7f\u009b`},
		{"bidi \u202e, invalid \xff\xc3", `bidi \u202e, invalid \xff\xc3`},
		{strings.Repeat("x", maxEvidence), strings.Repeat("x", maxEvidence)},
		{strings.Repeat("x", maxEvidence+1), strings.Repeat("x", maxEvidence-3) + "…"},
	} {
		if got := sanitize(tt.in); got != tt.want {
			t.Errorf("sanitize(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
