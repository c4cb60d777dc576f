package observe_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/observe"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
)

func observed() *result.Result {
	return &result.Result{
		Backend: result.Backend{Name: "bwrap"},
		Usage:   result.Usage{Wall: result.Seconds(9 * time.Second), PeakMemory: new(int64(100 << 20)), PIDs: new(int64(9))},
		Network: result.Network{Mode: sdk.NetworkFull, TrafficMore: 2, Traffic: []sdk.Traffic{
			{Name: "10.1.2.3", Port: 80, Reason: "10.1.2.3 is a private address", Add: "10.1.2.3:80", Connections: 1},
			{Name: "pkg.example", Port: 443, Allowed: true, Connections: 2, Received: 10},
			{Name: "files.example", Port: 443, Allowed: true, Received: 10},
			{Name: "pkg.example", Port: 443, Allowed: true, Connections: 1, Reason: "reset", Received: 1},
			{Name: "api.example", Port: 443, Allowed: true, Rule: "api.example:443", Received: 1, Secrets: []string{"TOKEN"}},
			{Name: "host", Port: 8080, Allowed: true, Rule: "host", Received: 1},
			{Name: "gone.example", Port: 22, Allowed: true, Reason: "no such host"},
			{Name: "bad\x1b[2J", Port: 443, Allowed: true, Received: 1},
		}},
		Limits:       []result.Limit{{Limit: sdk.LimitMemory}, {Limit: sdk.LimitPIDs}},
		ChangesKnown: true, Observed: true, OK: true, Files: []sdk.FileUse{{Path: "/data/x", Found: true}},
	}
}

func TestFrom(t *testing.T) {
	d := &runfile.Definition{Workspace: &runfile.Workspace{Source: "/p", Mode: "shared"}}
	n := observe.From(d, observed())
	want := observe.Needs{
		Allow:  []string{"api.example:443", "files.example:443", "host", "pkg.example:443"},
		Limits: runfile.Limits{Timeout: units.Duration(30 * time.Second), Memory: 224 << 20, PIDs: 32},
		Notes: []string{
			"denied: 10.1.2.3 is a private address; to allow it: --allow-host 10.1.2.3:80",
			`not reached: "gone.example:22": "no such host"`,
			`no rule can name the destination "bad\x1b[2J:443"`,
			"2 more destinations are not in the record",
			`nothing in the workspace changed: mode = "readonly" would do`,
		},
	}
	if diff := cmp.Diff(want, n, cmp.FilterPath(func(p cmp.Path) bool {
		f, ok := p.Last().(cmp.StructField)
		return ok && (f.Name() == "usage" || f.Name() == "backend" || f.Name() == "asked")
	}, cmp.Ignore())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	r := observed()
	r.Usage = result.Usage{Wall: result.Seconds(time.Millisecond), PeakMemory: new(int64(1))}
	if got, want := observe.From(d, r).Limits, (runfile.Limits{Timeout: units.Duration(10 * time.Second), Memory: 64 << 20}); got != want {
		t.Errorf("a small run has the limits %+v, want %+v", got, want)
	}
}

// TestFile holds that a run file which is written is read as the same run.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "run ${me}.py"), []byte("print()\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	odd := []string{"sh", "-c", "echo \"${HOME}\" %{ if } \\ 'x'\nsecond\tline", "grüße", ""}
	net := network.Network{Mode: sdk.NetworkFiltered, Allow: []string{"host:5432"}, Deny: []string{"bad.example"}, Publish: []string{"8080:3000"},
		Secrets: []network.Secret{{Name: "TOKEN", From: network.Source{Env: "TOKEN"}, Hosts: []string{"api.example", "other.example"}, Rules: []sdk.SecretRule{{Methods: []string{"GET"}, Paths: []string{"/a/*"}}}},
			{Name: "KEY", From: network.Source{Command: []string{"gh", "auth"}, TTL: units.Duration(time.Minute)}, Hosts: []string{"b.example"}}}}
	t.Setenv("TOKEN", "t0ken-value")
	t.Setenv("PLAIN", "v")
	for _, tt := range []struct {
		name, script, image string
		d                   runfile.Definition
	}{
		{name: "command", d: runfile.Definition{Name: "sh", Command: odd, Workdir: "/tmp", Env: map[string]string{"PLAIN": "v"}, Network: net,
			Workspace: &runfile.Workspace{Source: dir, Mode: "private"}, Mounts: []runfile.Mount{{Target: "/data", Source: dir, Mode: runfile.MountReadOnly}}}},
		{name: "image", image: "debian:12", d: runfile.Definition{Name: "cat", Command: []string{"cat", "/etc/os-release"}}},
		{name: "script", script: "run ${me}.py", d: runfile.Definition{Name: "run.py", Entrypoint: "run.py", Language: "python", Args: []string{"5"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := observed()
			n := observe.From(&tt.d, r)
			path := filepath.Join(t.TempDir(), "run.hcl")
			text := n.File(&tt.d, dir, tt.script, tt.image)
			if tt.script != "" || tt.d.Workspace != nil {
				path = filepath.Join(dir, "run.hcl")
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			conf, ds := runfile.Load([]string{path}, runfile.Options{Environ: os.Environ()})
			if ds.HasErrors() {
				t.Fatalf("%v\n%s", ds, text)
			}
			got, want := conf.Runs()[0], n.Narrow(&tt.d)
			if n := len(want.Network.Secrets); n > 1 || n == 1 && want.Network.Secrets[0].Name != "TOKEN" {
				t.Errorf("there is a secret that was not used: %v", want.Network.Secrets)
			}
			for _, x := range []struct {
				what      string
				got, want any
			}{
				{"command", got.Command, want.Command}, {"args", got.Args, want.Args}, {"entrypoint", got.Entrypoint, want.Entrypoint}, {"language", got.Language, want.Language},
				{"workdir", got.Workdir, want.Workdir}, {"workspace", got.Workspace, want.Workspace}, {"mounts", got.Mounts, want.Mounts},
				{"limits", got.Limits, want.Limits}, {"network", got.Network, want.Network}, {"backend", got.Backends[0].Name, "bwrap"},
			} {
				if diff := cmp.Diff(x.want, x.got); diff != "" {
					t.Errorf("%s, -want +got:\n%s\n%s", x.what, diff, text)
				}
			}
			if tt.d.Env != nil {
				if diff := cmp.Diff(tt.d.Env, got.Env); diff != "" {
					t.Errorf("env, -want +got:\n%s", diff)
				}
			}
			if again, _ := runfile.Format("run.hcl", []byte(text)); string(again) != text {
				t.Errorf("it is not in the canonical layout:\n%s", text)
			}
		})
	}
}

// TestFiles reads what a run named: mounts that it used, and what it asked for in vain.
func TestFiles(t *testing.T) {
	home, err := os.MkdirTemp("/var/tmp", "hutch-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	t.Setenv("HOME", home)
	for _, dir := range []string{"sdk/bin", ".config/tool"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"sdk/bin/tool", ".config/tool/rc", ".netrc"} {
		if err := os.WriteFile(filepath.Join(home, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	used, unused := runfile.Mount{Target: "/used", Source: "/u", Mode: runfile.MountReadOnly}, runfile.Mount{Target: "/use", Source: "/v", Mode: runfile.MountReadOnly}
	d := &runfile.Definition{Name: "r", Command: []string{"tool"}, Mounts: []runfile.Mount{used, unused}}
	r := observed()
	r.Files = []sdk.FileUse{{Path: "/used/x", Found: true, Write: true}, {Path: home + "/.config/tool/new", Write: true}, {Path: home + "/.netrc"}, {Path: home + "/sdk/bin/tool"}}
	n := observe.From(d, r)
	if diff := cmp.Diff([]runfile.Mount{used}, n.Mounts); diff != "" || n.Missing(d) != nil || len(n.Files) != 0 {
		t.Errorf("a run that succeeded, -want +got:\n%s %v", diff, n.Files)
	}
	for _, note := range []string{`the mount "/use" was not used`, fmt.Sprintf("asked for in vain, and not needed: %q, %q, %q", home+"/.config/tool/new", home+"/.netrc", home+"/sdk/bin/tool")} {
		if !slices.Contains(n.Notes, note) {
			t.Errorf("no note %q: %q", note, n.Notes)
		}
	}

	r.OK = false
	n = observe.From(d, r)
	writable := used
	writable.Mode = runfile.MountWritable
	want := []runfile.Mount{writable, {Target: home + "/.config/tool", Source: home + "/.config/tool", Mode: runfile.MountWritable}, {Target: home + "/sdk", Source: home + "/sdk", Mode: runfile.MountReadOnly}}
	if diff := cmp.Diff(want, n.Mounts); diff != "" {
		t.Errorf("a run that failed, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{home + "/.netrc"}, n.Files); diff != "" {
		t.Error(diff)
	}
	want[1].Mode = runfile.MountReadOnly // nothing of this machine is written to find out
	if diff := cmp.Diff(want[1:], n.Missing(d)); diff != "" {
		t.Errorf("what is missing, -want +got:\n%s", diff)
	}
	text := n.File(d, home, "", "")
	for _, line := range []string{fmt.Sprintf("ro_bind = [%q] # asked for in vain", home+"/.netrc"), "# asked for in vain, to write\n", "# written, and read-only in the observed run\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}

	r.Observed = false
	if n := observe.From(d, r); len(n.Mounts) != 2 || !slices.Contains(n.Notes, "backend bwrap does not record files") {
		t.Errorf("a backend that does not record files: %v %q", n.Mounts, n.Notes)
	}
}

// TestProve holds, for any set of rules that a run really needs, that these and no others are left.
func TestProve(t *testing.T) {
	all := []string{"a.example:1", "b.example:2", "c.example:3", "d.example:4", "e.example:5"}
	for range 200 {
		var needed []string
		for _, r := range all {
			if rand.IntN(2) == 0 {
				needed = append(needed, r)
			}
		}
		mount := runfile.Mount{Target: "/data"}
		mounted := rand.IntN(2) == 0
		tries := 0
		n, err := observe.Needs{Allow: all, Mounts: []runfile.Mount{mount}}.Prove(&runfile.Definition{}, func(_ string, d *runfile.Definition) (bool, error) {
			tries++
			for _, r := range needed {
				if !slices.Contains(d.Network.Allow, r) {
					return false, nil
				}
			}
			return !mounted || slices.Contains(d.Mounts, mount), nil
		})
		if err != nil || !slices.Equal(n.Allow, needed) || slices.Contains(n.Mounts, mount) != mounted || tries != len(all)+2 {
			t.Fatalf("needed %v, mount %v: got %v, %v, %v after %d tries", needed, mounted, n.Allow, n.Mounts, err, tries)
		}
	}
	fails := func(string, *runfile.Definition) (bool, error) { return false, nil }
	if _, err := (observe.Needs{Allow: all}).Prove(&runfile.Definition{}, fails); !errors.Is(err, observe.ErrNotEnough) {
		t.Errorf("a run that fails with all of it: %v, want ErrNotEnough", err)
	}
}
