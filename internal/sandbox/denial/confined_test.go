package denial

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefusedByLandlock runs real programs under a real Landlock policy that
// lets them write in the workspace only, and expects each refusal to be seen,
// with the file that it was about.
func TestRefusedByLandlock(t *testing.T) {
	tests := []struct{ program, command, want string }{
		{"bash", `echo x > $OUT/n`, "n"},
		{"bash", `: > $OUT/f`, "f"},
		{"bash", `> $OUT/new`, "new"},
		{"bash", `echo x >> "$OUT/a b"`, "a b"},
		{"bash", `echo x > "$OUT/a: b"`, "a: b"},
		{"bash", `echo x > ../out/n`, "n"},
		{"dash", `dash -c 'echo x > $OUT/n'`, "n"},
		{"touch", `touch $OUT/n`, "n"},
		{"touch", `touch ../out/n`, "n"},
		{"touch", `touch "$OUT/it's"`, "it's"},
		{"touch", `touch $OUT/$'a\nb'`, "a\nb"},
		{"touch", `touch $OUT/$'it\'s "\t"'`, "it's \"\t\""},
		{"touch", `touch $OUT/ü`, "ü"},
		{"mkdir", `mkdir $OUT/d`, "d"},
		{"mkdir", `mkdir -p $OUT/d/e/f`, "d"},
		{"mkdir", `mkdir $OUT/$'a\nb'`, "a\nb"},
		{"cp", `echo x > s; cp s $OUT/g`, "g"},
		{"cp", `echo x > s; cp s $OUT/f`, "f"},
		{"rm", `rm -f $OUT/f`, "f"},
		{"mv", `mv $OUT/f $OUT/g`, "f"},
		{"ln", `echo x > s; ln s $OUT/l || ln -s s $OUT/l`, "l"},
		{"tee", `echo x | tee $OUT/n`, "n"},
		{"dd", `dd if=/dev/null of=$OUT/n`, "n"},
		{"truncate", `truncate -s0 $OUT/f`, "f"},
		{"install", `echo x > s; install s $OUT/g`, "g"},
		{"mktemp", `mktemp $OUT/XXXXXX`, "XXXXXX"},
		{"sort", `echo x > s; sort -o $OUT/n s`, "n"},
		{"split", `echo x > s; split s $OUT/x`, "xaa"},
		{"sed", `sed -i s/a/b/ $OUT/f`, "sed"},
		{"tar", `echo x > s; tar cf $OUT/n s`, "n"},
		{"git", `git init -q $OUT/repo`, "repo"},
		{"git", `git init -q $OUT`, ".git"},
		{"git", `git init -q . && git config --file $OUT/c a.b c`, "c"},
		{"python3", `python3 -c "open('$OUT/n', 'w')"`, "n"},
		{"python3", `python3 -c "import os; os.rename('$OUT/f', '$OUT/g')"`, "f"},
		{"python3", `python3 -c "import os; os.mkdir('$OUT/it\\'s')"`, "it's"},
		{"node", `node -e "fs.writeFileSync('$OUT/n', '')"`, "n"},
		{"node", `node -e "fs.unlinkSync('$OUT/f')"`, "f"},
		{"node", `node -e "fs.renameSync('$OUT/f', '$OUT/g')"`, "f"},
		{"perl", `perl -e 'open(F, ">$ENV{OUT}/n") or die "$ENV{OUT}/n: $!"'`, "n"},
		{"awk", `awk 'BEGIN { print > "../out/n" }'`, "n"},
		{"gzip", `echo x > s; gzip -c s > $OUT/n`, "n"},
	}
	for _, tt := range tests {
		t.Run(tt.command, func(t *testing.T) {
			if _, err := exec.LookPath(tt.program); err != nil {
				t.Skipf("%s is not installed", tt.program)
			}
			t.Parallel()
			a := newArena(t)
			e := a.run("landlock", true, tt.command)
			d, denied := Classify(e)
			if !denied {
				t.Fatalf("no denial (exit code %d):\n%s", e.ExitCode, e.Stderr)
			}
			want := filepath.Join(a.out, tt.want)
			if d.Path != want && (tt.program != "sed" || !strings.HasPrefix(d.Path, want)) {
				t.Errorf("path %q, want %q; stderr:\n%s", d.Path, want, e.Stderr)
			}
			// Nothing of this is a denial for a user who could not have done it anyway.
			must(t, os.Lchown(a.out, os.Getuid(), os.Getgid()))
			must(t, os.Chmod(a.out, 0o555))
			must(t, os.Chmod(filepath.Join(a.out, "f"), 0o444))
			if d, denied := Classify(e); denied {
				t.Errorf("a denial although the user may not: %+v", d)
			}
		})
	}
}

// TestSymlinksOutOfWorkspace: where a link leads decides, not where it stands.
func TestSymlinksOutOfWorkspace(t *testing.T) {
	a := newArena(t)
	must(t, os.Symlink(a.out, filepath.Join(a.ws, "esc")))
	must(t, os.Symlink(filepath.Join(a.out, "f"), filepath.Join(a.ws, "escf")))
	must(t, os.Symlink("esc/dangling", filepath.Join(a.ws, "chain")))
	for _, tt := range []struct{ command, want string }{
		{`echo x > esc/n`, "n"},
		{`echo x > escf`, "f"},
		{`echo x > chain`, "dangling"},
		{`touch esc/../out/n`, "n"},
		{`echo x>esc/n; echo x>escf; ln $OUT/f hl`, "f"},
	} {
		e := a.run("landlock", true, tt.command)
		d, denied := Classify(e)
		if want := filepath.Join(a.out, tt.want); !denied || d.Path != want {
			t.Errorf("%s: denied %v, path %q, want %q; stderr:\n%s", tt.command, denied, d.Path, want, e.Stderr)
		}
	}
	must(t, os.Symlink(a.ws, filepath.Join(a.out, "back")))
	e := a.evidence(1, "touch: cannot touch '../out/back/n': Permission denied\n", true)
	if d, denied := Classify(e); denied {
		t.Errorf("a link back into the workspace: %+v", d)
	}
}

// TestLocalized makes glibc's catalogues speak. It builds the locales that it
// needs, as few hosts have any.
func TestLocalized(t *testing.T) {
	if testing.Short() {
		t.Skip("building locales takes seconds")
	}
	const commands = `echo x > $OUT/n; cd $OUT/secret; touch $OUT/n; mkdir $OUT/n; cp $OUT/f $OUT/n; ` +
		`tee $OUT/n </dev/null; ln -s f $OUT/n; install /dev/null $OUT/n; tar cf $OUT/n .; git init -q $OUT/n`
	for _, locale := range []string{"de_DE", "ja_JP"} {
		t.Run(locale, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat("/usr/share/locale/" + locale[:2] + "/LC_MESSAGES/libc.mo"); err != nil {
				t.Skip("no catalogue of glibc")
			}
			a := newArena(t)
			dir := filepath.Dir(a.ws)
			out, err := exec.CommandContext(t.Context(), "localedef", "-i", locale, "-f", "UTF-8",
				filepath.Join(dir, locale+".UTF-8")).CombinedOutput()
			if err != nil {
				t.Skipf("the locale cannot be built: %v: %s", err, out)
			}
			e := a.run("landlock", true, commands, "LC_ALL="+locale+".UTF-8", "LOCPATH="+dir)
			if strings.Contains(string(e.Stderr), "Permission denied") {
				t.Fatalf("not translated: %s", e.Stderr)
			}
			denials := 0
			for line := range strings.Lines(string(e.Stderr)) {
				d, denied := Classify(a.evidence(1, line, true))
				if denied && d.Path != filepath.Join(a.out, "n") {
					t.Errorf("path %q; line: %s", d.Path, line)
				}
				if denied {
					denials++
				}
			}
			if denials < 8 { // git may be missing
				t.Errorf("%d denials; stderr:\n%s", denials, e.Stderr)
			}
		})
	}
}

// TestFailuresThatAreNone runs commands that fail by themselves, unconfined,
// and expects no denial even though the mode forbids all writing.
func TestFailuresThatAreNone(t *testing.T) {
	tests := []struct {
		name, command string
		code          int
	}{
		{"false", `false`, 1},
		{"no match", `grep x /etc/hostname-that-is-not-there /dev/null`, 2},
		{"runner text forged", `echo 'bwrap: Permission denied' >&2; exit 125`, 125},
		{"phrase without a path", `echo 'permission denied' >&2; exit 1`, 1},
		{"phrase with a program", `echo 'nc: Permission denied' >&2; exit 1`, 1},
		{"ssh", `echo 'ssh: Permission denied (publickey)' >&2; exit 255`, 255},
		{"git over ssh", `echo 'git@github.com: Permission denied (publickey).' >&2; exit 128`, 128},
		{"scp", `echo "scp: $OUT/f: Permission denied" >&2; exit 1`, 1},
		{"port", `echo 'listen tcp :80: bind: permission denied' >&2; exit 1`, 1},
		{"table", `echo 'psql: ERROR: permission denied for table x' >&2; exit 1`, 1},
		{"URL", `echo 'curl: http://x/y: Permission denied' >&2; exit 1`, 1},
		{"bash socket", `echo 'bash: connect: Permission denied' >&2; exit 1`, 1},
		{"phrase without a path (EPERM)", `echo 'Operation not permitted'; exit 1`, 1},
		{"mode 000 read", `cat locked`, 1},
		{"mode 000 write", `echo x > locked`, 1},
		{"not executable", `./script`, 126},
		{"not executable outside", `/etc/passwd`, 126},
		{"not executable via env", `env ./script`, 126},
		{"not executable via dash", `dash -c ./script; exit 3`, 3},
		{"private file", `cat private/x`, 1},
		{"private directory", `ls private; cd private`, 1},
		{"foreign directory", `touch /etc/x`, 1},
		{"foreign file", `chmod 644 /etc/passwd`, 1},
		{"signals", `kill -0 1`, 1},
		{"chown", `chown 0 own`, 1},
		{"device", `mknod n b 7 0`, 1},
		{"clean exit", `touch /etc/x; true`, 0},
	}
	a := newArena(t)
	a.put(filepath.Join(a.ws, "locked"), "x", 0)
	a.put(filepath.Join(a.ws, "script"), "#!/bin/sh\n", 0o644)
	a.put(filepath.Join(a.ws, "own"), "x", 0o644)
	must(t, os.Mkdir(filepath.Join(a.ws, "private"), 0))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(a.ws, "private"), 0o700) })
	a.own(filepath.Join(a.ws, "private"))
	must(t, os.Chmod(filepath.Join(a.ws, "private"), 0))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := a.run("none", false, tt.command)
			if e.ExitCode != tt.code {
				t.Fatalf("exit code %d, want %d: %s", e.ExitCode, tt.code, e.Stderr)
			}
			if d, denied := Classify(e); denied {
				t.Errorf("denial %+v; stderr:\n%s", d, e.Stderr)
			}
		})
	}
}

// TestHiddenFileRefused: reading is judged as reading.
func TestHiddenFileRefused(t *testing.T) {
	a := newArena(t)
	secret := filepath.Join(a.out, "secret")
	must(t, os.Mkdir(secret, 0o755))
	a.own(secret)
	a.put(filepath.Join(secret, "key"), "canary", 0o644)
	for _, line := range []string{
		"cat: ../out/secret/key: Permission denied",
		"ls: cannot open directory '../out/secret': Permission denied",
		"bash: line 1: cd: ../out/secret: Permission denied",
		"bash: line 1: ../out/secret/key: Permission denied",
		"cp: cannot open '../out/secret/key' for reading: Permission denied",
		"open ../out/secret/key: permission denied",
	} {
		if _, denied := Classify(a.evidence(1, line, false)); !denied {
			t.Errorf("no denial: %s", line)
		}
	}
	// Readable places stay so in every mode: these failed for another reason.
	for _, line := range []string{
		"cat: ../out/f: Permission denied",
		"ls: cannot open directory '../out': Permission denied",
		"cat: ../out/secret/missing: Permission denied",
	} {
		if d, denied := Classify(a.evidence(1, line, false)); denied {
			t.Errorf("denial %+v: %s", d, line)
		}
	}
}
