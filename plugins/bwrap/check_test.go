package main

import (
	"os"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

func TestSandboxCheck(t *testing.T) {
	needBwrap(t)
	findings, err := newBackend().Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]sdk.Finding{}
	for _, f := range findings {
		t.Logf("%-22s %-8s %s | %s", f.Name, f.Status, f.Detail, f.Fix)
		seen[f.Name] = f
		if f.Status == sdk.SeverityError {
			t.Errorf("%s: %s", f.Name, f.Detail)
		}
		if f.Detail == "" {
			t.Errorf("%s says nothing", f.Name)
		}
	}
	if f := seen["network"]; f.Status != sdk.SeverityOK {
		t.Errorf("network: %s", f.Detail)
	}
	for _, name := range []string{"bubblewrap", "user namespaces", "cgroups", "sandbox", "overlay", "network", "command", "interpreter python3", "interpreter node"} {
		if seen[name].Status == "" {
			t.Errorf("nothing is said about %q", name)
		}
	}
}

func TestCheckNamesWhatIsMissing(t *testing.T) {
	old := bwrapPlaces
	defer func() { bwrapPlaces = old }()
	bwrapPlaces = []string{t.TempDir() + "/bwrap"}
	if f := checkBwrap(); f.Status != sdk.SeverityError || !strings.Contains(f.Fix, "install bubblewrap") {
		t.Errorf("a missing bwrap gave %+v", f)
	}
	for script, want := range map[string]string{"echo bubblewrap 0.3.1": "too old", "echo something else": "is not bubblewrap", "exit 3": "exit status 3"} {
		fake := t.TempDir() + "/bwrap"
		if err := os.WriteFile(fake, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		bwrapPlaces = []string{fake}
		if f := checkBwrap(); f.Status != sdk.SeverityError || !strings.Contains(f.Detail, want) {
			t.Errorf("%q gave %+v", script, f)
		}
	}
}
