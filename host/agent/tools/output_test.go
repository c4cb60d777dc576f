package tools

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hutch-run/hutch/host/workspace/files"
)

func TestTail(t *testing.T) {
	var all bytes.Buffer
	x := &tail{}
	for i := range 500_000 {
		line := fmt.Sprintf("%07d\n", i)
		all.WriteString(line)
		_, _ = x.Write([]byte(line))
	}
	out := x.read(0, 100)
	if out.Total != int64(all.Len()) || out.Offset != out.Total-keptOutput || out.Skipped != out.Offset || out.Text != all.String()[out.Offset:out.Next] {
		t.Errorf("read %+v", out)
	}
	if len(x.kept) > 2*keptOutput {
		t.Errorf("%d bytes are kept", len(x.kept))
	}
	y := &tail{}
	_, _ = y.Write([]byte("aäb"))
	if out := y.read(0, 2); out.Text != "a" || out.Next != 1 {
		t.Errorf("inside of a character: %+v", out)
	}
	if out := y.read(4, 10); out.Text != "" || out.Next != 4 {
		t.Errorf("at the end: %+v", out)
	}
	if out := y.read(99, 10); out.Text != "aäb" {
		t.Errorf("beyond the end: %+v", out)
	}
}

// An error passes several places that add what to do about it.
func TestExplainOnce(t *testing.T) {
	err := Explain(fmt.Errorf("read: %w", Explain(&files.Error{Path: "x", Detail: "it is outside", Hint: "go in"})))
	if got, want := err.Error(), "read: x: it is outside; go in"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}
