package exec

import "testing"

// TestLifeCycle goes through every pair of statuses.
func TestLifeCycle(t *testing.T) {
	all := []Status{StatusRunning, StatusStopping, StatusCompleted, StatusKilled, StatusFailed}
	allowed := map[[2]Status]bool{
		{StatusRunning, StatusStopping}:   true,
		{StatusRunning, StatusCompleted}:  true,
		{StatusRunning, StatusKilled}:     true,
		{StatusRunning, StatusFailed}:     true,
		{StatusStopping, StatusCompleted}: true,
		{StatusStopping, StatusKilled}:    true,
		{StatusStopping, StatusFailed}:    true,
	}
	for _, from := range all {
		leaves := false
		for _, to := range all {
			if got := from.CanBecome(to); got != allowed[[2]Status{from, to}] {
				t.Errorf("%s → %s: %v", from, to, got)
			}
			leaves = leaves || from.CanBecome(to)
		}
		if from.Terminal() == leaves {
			t.Errorf("%s: terminal %v, and is left: %v", from, from.Terminal(), leaves)
		}
	}
}
