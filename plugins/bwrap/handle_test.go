package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

// FuzzHandle sees to it that a handle which is taken names nothing of another sandbox, and that it can be planned
// again.
func FuzzHandle(f *testing.F) {
	for _, s := range []string{
		`{"dir":"/s/x","owner":"o","cgroup":"bwrap-x."}`, `{"dir":"s","cgroup":"bwrap-"}`, `{"dir":"/s","cgroup":"bwrap-"}`, `null`, `{}`, `[]`,
		`{"dir":"/a/b/x","kept":{"config":{},"limits":{"PIDs":-1,"CPUs":1e300,"Disk":9223372036854775807},"workspace":{"Source":"/a/w"},"mounts":[{"Source":"/a/m"}],"default_memory":-1}}`,
		`{"dir":"/s","kept":{"config":null}}`,
	} {
		f.Add([]byte(s))
	}
	support := newBackend().support()
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := readHandle(sdk.Handle{ID: "x", Data: data})
		if err != nil {
			return
		}
		if !filepath.IsAbs(h.Dir) || h.Cgroup != "" && h.Cgroup != "bwrap-x." {
			t.Fatalf("%+v", h)
		}
		if k := h.Kept; k != nil {
			spec := sdk.Spec{Config: k.Config, Limits: k.Limits, Network: k.Network, Workspace: k.Workspace, Input: k.Input, Mounts: k.Mounts}
			spec.Relocate(h.Dir, "/new/sandboxes/x")
			if s, err := planSandbox("x", "/new/sandboxes/x", spec, true, support, nil, k.DefaultMemory); err == nil && s.held.group.Memory > 1<<62 {
				t.Fatalf("a cgroup of %d bytes", s.held.group.Memory)
			}
		}
		again, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := readHandle(sdk.Handle{ID: "x", Data: again}); err != nil || !cmp.Equal(h, same) {
			t.Fatalf("%v: %s", err, cmp.Diff(h, same))
		}
	})
}
