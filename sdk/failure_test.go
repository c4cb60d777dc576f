package sdk

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/status"
)

// TestStatusOfJoinedErrors has a failed call and its cleanup say the same: the user reads one line, with each once.
func TestStatusOfJoinedErrors(t *testing.T) {
	gone := errors.New("the VM is gone")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"joined":           {errors.Join(gone, errors.New("remove x: no room"), gone), "the VM is gone; remove x: no room"},
		"around a Failure": {errors.Join(fmt.Errorf("exec: %w", &Error{Reason: ReasonMissing, Summary: "no limactl"}), gone), "exec: no limactl; the VM is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := status.Convert(statusOf(c.err)).Message(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
