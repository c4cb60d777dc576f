package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
)

// TestS7SampledMemory fills memory in the ways that a program has, where no cgroup holds it.
func TestS7SampledMemory(t *testing.T) {
	b := newBackend()
	b.machine().limits[limits.Memory] = limits.How{Reason: "no cgroup", Fix: "systemd-run"}
	spec := private(t, project(t))
	spec.Limits.Memory = 128 << 20
	s := newSandbox(t, b, spec)
	for name, script := range map[string]string{
		"malloc":            "head -c 900M /dev/zero | tail -n 1 | wc -c; sleep 60",
		"sixteen processes": "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do (head -c 30M /dev/zero; sleep 60) | tail -n 1 & done; wait",
		"files in memory":   "head -c 200M /dev/zero > /dev/shm/x; sleep 60",
	} {
		t.Run(name, func(t *testing.T) {
			if r := sh(t, s, script); r.Cause != sdk.CauseOOM || r.Code != 137 || !strings.Contains(r.Evidence, "sampled memory use") {
				t.Errorf("%+v %s", r.Exit, r.err)
			}
			_ = s.root.Remove("dev/shm/x") // there is no memory left for a command
		})
	}
}

// TestS6DiskHolds writes beyond a disk limit wherever a program can write, in every workspace mode and kind of sandbox.
func TestS6DiskHolds(t *testing.T) {
	t.Parallel()
	const big = 96 << 20
	for _, c := range []struct {
		name    string
		mode    sdk.WorkspaceMode
		keep    bool
		refused bool
	}{
		{"private", sdk.WorkspacePrivate, false, false},
		{"read-only", sdk.WorkspaceReadOnly, false, false},
		{"shared", sdk.WorkspaceShared, false, true},
		{"persistent private", sdk.WorkspacePrivate, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBackend()
			spec := private(t, project(t))
			spec.Workspace.Mode, spec.Limits.Disk = c.mode, 8<<20
			var e *sdk.Error
			if err := planLimits(&spec, c.keep, "/", b.machine(), 0).Err(); (err != nil) != c.refused || c.refused && (!errors.As(err, &e) || e.Fix == "") {
				t.Fatalf("the plan says %v", err)
			}
			if c.refused {
				if _, _, err := makeSandbox(t, b, spec); !errors.As(err, &e) || e.Limit != sdk.LimitDisk {
					t.Errorf("create says %v", err)
				}
				return
			}
			s := newSandbox(t, b, spec, func(r *sdk.CreateRequest) { r.Keep = c.keep })
			for _, where := range []string{"/workspace", s.Ready().Output, "/tmp", "/dev/shm", "/dev"} {
				if sh(t, s, "echo x > "+where+"/try && rm "+where+"/try").Code != 0 {
					continue // of this user not to be written
				}
				for what, script := range map[string]string{
					"bytes": fmt.Sprintf("head -c %d /dev/zero > %s/big || exit 1; sleep 60", big, where),
					"files": fmt.Sprintf("mkdir %s/many && cd %[1]s/many && i=0; while [ $i -lt 3000 ]; do : > $i || exit 1; i=$((i+1)); done; sleep 60", where),
				} {
					if r := sh(t, s, script); r.Cause != sdk.CauseDisk || r.Code == 0 {
						t.Errorf("%s in %s: %+v %s", what, where, r.Exit, r.err)
					}
					sh(t, s, fmt.Sprintf("rm -rf %s/big %[1]s/many", where))
				}
			}
		})
	}
}

// TestS8Defaults looks at what is held when nobody asks.
func TestS8Defaults(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newBackend(), private(t, project(t)))
	for _, l := range []sdk.Limit{sdk.LimitMemory, sdk.LimitPIDs, sdk.LimitDisk, sdk.LimitFiles} {
		found := false
		for _, h := range s.Ready().Holds {
			found = found || h.Limit == l && h.Default && h.HeldBy != "" && h.Value != ""
		}
		if !found {
			t.Errorf("no default of %s in %+v", l, s.Ready().Holds)
		}
	}
	r := sh(t, s, "i=0; while [ $i -lt 1500 ]; do sleep 600 & i=$((i+1)); done; exit 0")
	if r.Code == 0 {
		t.Error("1,500 processes ran")
	}
}
