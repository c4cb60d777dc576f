package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// TestForeignHandlesRemoveNothing gives Destroy handles without its own directory, from a directory that has what
// a careless one would remove.
func TestForeignHandlesRemoveNothing(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"tmp", "home", "workspace", "output", "input"} {
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, data := range []string{`{}`, `{"dir":""}`, `{"dir":"."}`, `{"dir":"tmp/.."}`} {
		if err := (&backend{}).Destroy(t.Context(), sdk.Handle{ID: "nobody-knows", Data: json.RawMessage(data)}); err == nil {
			t.Errorf("%s was accepted", data)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 5 {
		t.Errorf("%d of 5 directories are left in %s, %v", len(left), filepath.Base(dir), err)
	}
}
