package exec

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// TestTwoRemoveTheSame: the end of a command and the janitor may remove one tree at the same time, and neither fails for it.
func TestTwoRemoveTheSame(t *testing.T) {
	dir := t.TempDir()
	state, workspace := dir+"/state", dir+"/ws"
	if err := errors.Join(os.Mkdir(state, 0o700), os.Mkdir(workspace, 0o700)); err != nil {
		t.Fatal(err)
	}
	f, err := openFiles(Settings{StateDir: state, Workspace: workspace})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	f.kick = func() {}
	if err := f.makeTrash(); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		name := fmt.Sprint(i)
		for j := range 5 {
			if err := os.MkdirAll(fmt.Sprintf("%s/trash/%s/%d/sub/sub", state, name, j), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var both sync.WaitGroup
		for range 3 {
			both.Go(func() {
				if err := f.removeTrash(time.Now().Add(removePatience), name); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if t.Failed() {
			return
		}
	}
}
