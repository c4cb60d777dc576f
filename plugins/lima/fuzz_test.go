package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// FuzzRecords gives the same bytes to everything that reads a handle or a record of a sandbox.
func FuzzRecords(f *testing.F) {
	for _, s := range []string{
		`{"vm":"hutch"}`, `{"vm":"../x"}`, `{"vm":"a--b"}`, `null`, `[]`, `{}`,
		`{"ID":"x","Owner":"o","Spec":{"Config":{"CPUs":-1},"Limits":{"CPUs":1e300}},"Ready":{}}`, `{"ID":"x","Spec":{"Config":null}}`, `{"ID":"y"}`,
	} {
		f.Add([]byte(s))
	}
	m := &machine{records: records{f.TempDir()}}
	if err := os.Mkdir(filepath.Dir(m.box("x")), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if h, err := readHandle(sdk.Handle{ID: "x", Data: data}); err == nil && filepath.Dir(filepath.Join("/lima", h.Machine)) != "/lima" {
			t.Errorf("the VM %q", h.Machine)
		}
		if err := os.WriteFile(m.box("x"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		rec, err := m.exists("x")
		if err != nil {
			return
		}
		if rec == nil || rec.ID != "x" {
			t.Fatalf("the record %+v", rec)
		}
		configOf(&rec.Spec).Validate()
		if _, err := json.Marshal(rec); err != nil {
			t.Error(err)
		}
	})
}
