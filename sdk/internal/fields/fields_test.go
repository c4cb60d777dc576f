package fields

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// TestCopy has what the test of package sdk/client, which sends every type there and back, cannot send.
func TestCopy(t *testing.T) {
	type window struct{ Rows, Cols uint16 }
	var w window
	Copy(&w, &pb.WindowSize{Rows: 70_000, Cols: 80})
	if w != (window{65535, 80}) {
		t.Errorf("a number that is out of range became %v", w)
	}
	var block struct{ Min, Max int8 }
	Copy(&block, &pb.Block{Min: -1000, Max: 1000})
	if block.Min != -128 || block.Max != 127 {
		t.Errorf("numbers that are out of range became %v", block)
	}
	for number, name := range map[pb.Isolation]string{
		pb.Isolation_ISOLATION_REMOTE_VM: "remote-vm", pb.Isolation_ISOLATION_UNSPECIFIED: "", 99: "",
	} {
		var facts struct{ Isolation string }
		Copy(&facts, &pb.DescribeResponse{Isolation: number})
		if facts.Isolation != name {
			t.Errorf("%d is called %q, want %q", number, facts.Isolation, name)
		}
	}
	var failure pb.Failure
	Clean(&failure, &struct{ Reason, Summary string }{"not_found", "\xff"})
	if failure.Reason != pb.Failure_REASON_NOT_FOUND || failure.Summary != "\uFFFD" {
		t.Errorf("%v", &failure)
	}
	Clean(&failure, &struct{ Reason string }{"weather"})
	if failure.Reason != pb.Failure_REASON_UNSPECIFIED {
		t.Errorf("a name that is not known became %v", failure.Reason)
	}
	// What is absent, empty or of another type leaves the destination as it is.
	start := pb.ExecStart{Stdin: "kept", TimeoutNs: 1, Argv: [][]byte{[]byte("kept")}}
	Copy(&start, &struct {
		Stdin   *time.Timer
		Env     map[string]string
		TTY     *window
		Argv    []string
		Timeout time.Duration
	}{Stdin: &time.Timer{}, Env: map[string]string{"A": "1"}, Timeout: time.Second})
	want := []any{"kept", int64(time.Second), "kept", 0, (*pb.WindowSize)(nil)}
	got := []any{start.Stdin, start.TimeoutNs, string(start.Argv[0]), len(start.Env), start.Tty}
	if diff := cmp.Diff(want[:4], got[:4]); diff != "" || start.Tty != nil {
		t.Errorf("-want +got:\n%s", diff)
	}
}
