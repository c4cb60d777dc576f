package main

import (
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// FuzzHandle takes no handle that names anything but a directory, and believes the host first.
func FuzzHandle(f *testing.F) {
	for _, s := range []string{`{"dir":"/s/x"}`, `{"dir":"s"}`, `{"dir":"/s/../../etc"}`, `{"dir":""}`, `null`, `{}`, `[]`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir, err := dirOf(sdk.Handle{ID: "x", Data: data})
		if err == nil && (dir != filepath.Clean(dir) || !filepath.IsAbs(dir)) && len(data) > 0 {
			t.Errorf("%q is taken", dir)
		}
		if dir, err := dirOf(sdk.Handle{ID: "x", Data: data, StateDir: "/now"}); dir != "/now" || err != nil {
			t.Errorf("%q, %v", dir, err)
		}
	})
}
