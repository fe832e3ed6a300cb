package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxFileBytes is far beyond what a service has tokens for.
const maxFileBytes = 1 << 20

// exposedError says that others may write the file, and so let themselves in.
type exposedError struct {
	path string
	mode fs.FileMode
}

func (e *exposedError) Error() string {
	return fmt.Sprintf("group or others may write it (mode %04o), and so let themselves in; mend it with: chmod go-w %s", e.mode, e.path)
}

// writableByOthers are the permissions that a tokens file must not have.
const writableByOthers fs.FileMode = 0o022

// readFile returns the content of the tokens file, of one that others may write too, with an *exposedError
// besides. What is checked is what is read: the open file, wherever links led to. Errors do not repeat the path
// unless there is a file there: it may be a token, given by mistake.
func readFile(path string) (string, error) {
	// O_NONBLOCK: a FIFO must not hang the start.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", withoutPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", withoutPath(err)
	case !info.Mode().IsRegular():
		return "", errors.New("not a regular file")
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return "", withoutPath(err)
	case len(content) > maxFileBytes:
		return "", fmt.Errorf("larger than %d bytes", maxFileBytes)
	case info.Mode().Perm()&writableByOthers != 0:
		return string(content), &exposedError{path, info.Mode().Perm()}
	}
	return string(content), nil
}

func withoutPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
