package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCasesF is about the working directory: the one that was asked for, or none.
func TestCasesF(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"F01", caseF01},
		{"F02", caseF02},
		{"F03", caseF03},
		{"F04", caseF04},
		{"F04 task", caseF04Task},
		{"F04 as an ordinary user", caseF04Denied},
		{"F05", caseF05},
		{"F06", caseF06},
	})
}

func caseF01(t *testing.T, d *daemon) {
	missing := d.out + "/nope-123"
	p := d.refused(t, in{"command": "pwd", "workdir": missing}, 422, "WORKDIR_UNUSABLE")
	if !strings.Contains(p.Detail, missing) || !strings.Contains(p.Detail, "does not exist") || strings.Contains(p.Detail, "bash") {
		t.Errorf("detail %q; want the directory named, and that it does not exist", p.Detail)
	}
}

func caseF02(t *testing.T, d *daemon) {
	file := d.out + "/f02"
	write(t, file, "")
	p := d.refused(t, in{"command": "pwd", "workdir": file}, 422, "WORKDIR_UNUSABLE")
	if !strings.Contains(p.Detail, file) || !strings.Contains(p.Detail, "not a directory") {
		t.Errorf("detail %q; want it named, and that it is no directory", p.Detail)
	}
}

func caseF03(t *testing.T, d *daemon) {
	d.refused(t, in{"command": "pwd > here-f03.txt", "workdir": d.out + "/nope-123", "sandboxMode": "workspace-write"}, 422, "WORKDIR_UNUSABLE")
	// The daemon's directory and home is above all others of this test.
	_ = filepath.WalkDir(d.cmd.Dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == "here-f03.txt" {
			t.Errorf("the command ran elsewhere: %s", path)
		}
		return nil
	})
}

// caseF04 removes a directory while a command runs in it.
func caseF04(t *testing.T, d *daemon) {
	dir, started := subdir(t, d, "f04"), filepath.Join(d.shared(), "f04-started")
	run := d.begin(t, in{
		"command": `: >../f04-started; while [ -e "$PWD" ]; do sleep 0.05; done; ls; echo rc=$?`,
		"workdir": dir, "sandboxMode": "workspace-write", "timeoutMs": 30000,
	})
	d.await(t, "the command runs", func() bool { return exists(started) })
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	r := run.wait(t)
	r.exited(t, 0)
	if r.Stdout.Text != "rc=0\n" {
		t.Errorf("stdout %q; want the command to run to its end", r.Stdout.Text)
	}
	p := d.refused(t, in{"command": "pwd", "workdir": dir}, 422, "WORKDIR_UNUSABLE")
	if !strings.Contains(p.Detail, dir) {
		t.Errorf("detail %q; want the directory named", p.Detail)
	}
	d.sh(t, "echo ok").printed(t, "ok\n", "")
}

func caseF04Task(t *testing.T, d *daemon) {
	dir := subdir(t, d, "f04-task")
	k := d.task(t, in{"command": "echo up; read -r; ls; echo rc=$?", "workdir": dir, "stdinOpen": true})
	d.printedSoFar(t, k.ID, "up\n")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	d.goOn(t, k.ID)
	end := d.waitTask(t, k.ID)
	end.exited(t, 0)
	d.printedInAll(t, k.ID, "up\nrc=0\n", "")
	if end.Spec["workdir"] != dir {
		t.Errorf("workdir %v; want %s", end.Spec["workdir"], dir)
	}
	p := d.refusedTask(t, in{"command": "pwd", "workdir": dir}, 422, "WORKDIR_UNUSABLE")
	if !strings.Contains(p.Detail, dir) {
		t.Errorf("detail %q; want the directory named", p.Detail)
	}
}

// caseF04Denied needs a daemon that permissions hold for.
func caseF04Denied(t *testing.T, d *daemon) {
	if os.Geteuid() == 0 {
		d = launchIn(t, surroundings{nobody: true})
		t.Cleanup(func() { d.stop(t) })
	}
	locked := d.out + "/locked"
	if err := os.Mkdir(locked, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(locked, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(locked, 0o700) })
	for _, dir := range []string{locked, locked + "/below"} {
		for _, refused := range []func(testing.TB, in, int, string, ...string) problem{d.refused, d.refusedTask} {
			p := refused(t, in{"command": "pwd", "workdir": dir}, 422, "WORKDIR_UNUSABLE")
			if !strings.Contains(p.Detail, dir) || !strings.Contains(p.Detail, "permission denied") {
				t.Errorf("detail %q; want it named, and that permission was denied", p.Detail)
			}
		}
	}
	d.sh(t, "echo ok").printed(t, "ok\n", "")
}

func caseF05(t *testing.T, d *daemon) {
	for _, name := range []string{"a b", "é", "line\n", "tab\t'\"$x`\\", "-rf", "a b é\n"} {
		dir := subdir(t, d, "f05/"+name)
		r := d.run(t, in{"command": "pwd", "workdir": dir})
		r.exited(t, 0)
		r.printed(t, dir+"\n", "")
		r = d.run(t, in{"command": "pwd", "workdir": "f05/" + name}) // relative to the workspace
		r.exited(t, 0)
		r.printed(t, dir+"\n", "")
		d.refused(t, in{"command": "pwd", "workdir": dir + "/missing " + name}, 422, "WORKDIR_UNUSABLE")
	}
}

func caseF06(t *testing.T, d *daemon) {
	runs := make([]*pending, 50)
	for i := range runs {
		runs[i] = d.post(t, in{"command": "pwd", "workdir": fmt.Sprintf("%s/nope-%d", d.out, i)})
	}
	for _, run := range runs {
		a := <-run.answer
		if a.err != nil || a.resp.StatusCode != 422 || !strings.Contains(string(a.raw), `"WORKDIR_UNUSABLE"`) {
			t.Errorf("answered %v %s", a.err, a.raw)
		}
	}
	d.sh(t, "echo ok").printed(t, "ok\n", "") // by the one daemon that this test has
}
