package prober

import "golang.org/x/sys/unix"

// workspaceProbes change the workspace, which a read-only command must not.
func workspaceProbes() (list []probe) {
	for _, w := range []struct {
		name  string
		class Class
		text  string
		do    func(p *prober, dir string) error
	}{
		{"ws-write", ClassWrite, "writing to a file of a read-only workspace", func(p *prober, dir string) error {
			return openAndWrite(unix.O_WRONLY)(p, dir+".file")
		}},
		{"ws-create", ClassWrite, "making a file in a read-only workspace", func(_ *prober, dir string) error {
			return opens(dir+".new", unix.O_WRONLY|unix.O_CREAT)
		}},
		{"ws-create-by-cwd", ClassWrite, "making a file in the working directory", func(*prober, string) error {
			return opens("ws-create-by-cwd.new", unix.O_WRONLY|unix.O_CREAT)
		}},
		{"ws-mkdir", ClassWrite, "making a directory in a read-only workspace", func(_ *prober, dir string) error {
			return unix.Mkdirat(unix.AT_FDCWD, dir+".new", 0o700)
		}},
		{"ws-symlink", ClassWrite, "making a link in a read-only workspace", func(_ *prober, dir string) error {
			return unix.Symlinkat("x", unix.AT_FDCWD, dir+".new")
		}},
		{"ws-link", ClassWrite, "linking a file of a read-only workspace", func(_ *prober, dir string) error {
			return unix.Linkat(unix.AT_FDCWD, dir+".file", unix.AT_FDCWD, dir+".new", 0)
		}},
		{"ws-rename", ClassWrite, "renaming a file of a read-only workspace", func(_ *prober, dir string) error {
			return unix.Renameat2(unix.AT_FDCWD, dir+".file", unix.AT_FDCWD, dir+".new", 0)
		}},
		{"ws-unlink", ClassWrite, "removing a file of a read-only workspace", func(_ *prober, dir string) error {
			return unix.Unlinkat(unix.AT_FDCWD, dir+".file", 0)
		}},
		{"ws-truncate", ClassTruncate, "truncating a file of a read-only workspace", func(_ *prober, dir string) error {
			return unix.Truncate(dir+".file", 1)
		}},
		{"ws-open-truncate", ClassTruncate, "truncating a file of a read-only workspace by opening it", func(_ *prober, dir string) error {
			return opens(dir+".file", unix.O_RDONLY|unix.O_TRUNC)
		}},
		{"ws-chmod", ClassMetadata, "chmod in a read-only workspace", func(_ *prober, dir string) error {
			return unix.Fchmodat(unix.AT_FDCWD, dir+".file", 0o600, 0)
		}},
		{"ws-chown", ClassMetadata, "chown in a read-only workspace", func(p *prober, dir string) error {
			return chownAt(0)(p, dir+".file")
		}},
		{"ws-setxattr", ClassMetadata, "setting an attribute in a read-only workspace", func(_ *prober, dir string) error {
			return unix.Setxattr(dir+".file", attrName, []byte("x"), 0)
		}},
		{"ws-setflags", ClassMetadata, "changing flags in a read-only workspace", func(p *prober, dir string) error {
			return readable(setFlags)(p, dir+".file")
		}},
		{"ws-utimes", ClassTimestamps, "setting times in a read-only workspace", func(_ *prober, dir string) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, dir+".file", []unix.Timespec{{Sec: 1e9}, {Sec: 1e9}}, 0)
		}},
	} {
		list = append(list, probe{Effect: Effect{w.name, w.class, w.text}, needs: needWs, try: func(p *prober, at place) outcome {
			if p.workspace {
				return skip("allowed in this mode")
			}
			return result(w.do(p, at.ws))
		}})
	}
	return list
}
