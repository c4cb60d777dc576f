package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

func TestArrange(t *testing.T) {
	for _, tc := range []struct{ in, args, tail string }{
		{"run a.hcl", "run a.hcl", ""},
		{"run a.hcl --fail-fast test", "run --fail-fast a.hcl test", ""},
		{"run a.hcl -j 2 test --timeout 5s", "run -j 2 --timeout 5s a.hcl test", ""},
		{"run a.hcl -j2 test", "run -j2 a.hcl test", ""},
		{"run -it --backend bwrap -- bash -c ls", "run -it --backend bwrap", "bash -c ls"},
		{"run -ite A=1 x", "run -ite A=1 x", ""},
		{"run --timeout=5s -- a -- b", "run --timeout=5s", "a -- b"},
		{"run -var a=1 f.hcl", "run --var a=1 f.hcl", ""},
		{"run -var-file=x f.hcl", "run --var-file=x f.hcl", ""},
		{"fmt - --check", "fmt --check -", ""},
		{"fmt -- -check", "fmt -- -check", ""},
		{"backend list -q", "backend list -q", ""},
		{"audit verify latest -o json", "audit verify -o json latest", ""},
		{"run run", "run run", ""},
		{"--help run", "--help run", ""},
		{"nosuch --x y", "--x nosuch y", ""},
	} {
		t.Run(tc.in, func(t *testing.T) {
			c, err := arrangeForTest(t, strings.Fields(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Fields(tc.args), c.args); d != "" {
				t.Errorf("args (-want +got)\n%s", d)
			}
			if d := cmp.Diff(strings.Fields(tc.tail), append([]string{}, c.tail...)); d != "" {
				t.Errorf("tail (-want +got)\n%s", d)
			}
		})
	}
}

func TestArrangeValueIsNotADash(t *testing.T) {
	if _, err := arrangeForTest(t, []string{"run", "--timeout", "--", "true"}); err == nil {
		t.Fatal("-- was taken as the value of --timeout")
	}
}

func arrangeForTest(t *testing.T, argv []string) (*call, error) {
	t.Helper()
	k, err := build(&grammar{}).of(newUI(os.Stdin, os.Stdout, os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	return arrange(k.Model.Node, argv)
}

// FuzzArrange checks that no argument is lost, made up or moved past --.
func FuzzArrange(f *testing.F) {
	for _, s := range []string{"run a --fail-fast b -- c -d", "fmt -check -", "run -it -e -- x", "-- --", "run --memory", "run -", "-x=--"} {
		f.Add(s)
	}
	k, err := build(&grammar{}).of(newUI(os.Stdin, os.Stdout, os.Stderr))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		in := strings.Fields(line)
		c, err := arrange(k.Model.Node, in)
		if err != nil {
			return
		}
		counts := map[string]int{}
		for _, a := range in {
			counts[strings.TrimLeft(a, "-")]++
		}
		for _, a := range append(append([]string{}, c.args...), c.tail...) {
			counts[strings.TrimLeft(a, "-")]--
		}
		for a, n := range counts {
			if n != 0 && a != "" {
				t.Fatalf("%q: %q is off by %d in %q and %q", in, a, n, c.args, c.tail)
			}
		}
	})
}

func FuzzEnvFile(f *testing.F) {
	for _, s := range []string{"A=1\nB = 2", "# x\n\nPATH\nA==\r\n", "=x", "a\x00b=1", "A=\x00", "\ufeffA=1", "A=1\nA"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		env := map[string]string{}
		var passed []string
		if addEnvFile(env, &passed, "file", src) != nil {
			return
		}
		for name, value := range env {
			if name == "" || strings.ContainsAny(name+value, "\x00\n") || strings.Contains(name, "=") {
				t.Fatalf("%q is set to %q", name, value)
			}
		}
		for _, name := range passed {
			if _, ok := env[name]; !ok {
				t.Fatalf("%q is passed and not set", name)
			}
		}
	})
}

// FuzzFlags sees to it that the value of a flag is taken within its bounds or not at all.
func FuzzFlags(f *testing.F) {
	for _, s := range []string{"10", "-1", "NaN", "1e-320", "512MiB", "30d", "-5s", "0.0000001s", "644", "7777", "dir:ro", ":shared", "p:private", "a:/b", ":x", "./a:b", "/:/data:rw", "/:/data", "/:/proc:ro"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := []byte(s)
		var d duration
		if d.UnmarshalText(text) == nil && d <= 0 {
			t.Errorf("%q is the duration %d", s, d)
		}
		var b size
		if b.UnmarshalText(text) == nil && b <= 0 {
			t.Errorf("%q is the size %d", s, b)
		}
		if n, err := parseCount(s); err == nil && n <= 0 {
			t.Errorf("%q is the number %d", s, n)
		}
		if c, err := parseShare(s); err == nil && (!(c > 0) || math.IsInf(c, 0)) {
			t.Errorf("%q is the share %g", s, c)
		}
		var m fileMode
		if m.UnmarshalText(text) == nil && (m == 0 || m > 0o777) {
			t.Errorf("%q is the mode %o", s, m)
		}
		modes := []string{"private", "shared", "readonly"}
		var w mount
		if w.UnmarshalText(text) == nil && (w.dir == "" || !slices.Contains(modes, w.mode)) {
			t.Errorf("%q is the workspace %+v", s, w)
		}
		var p project
		if p.UnmarshalText(text) == nil && (store.CheckName(p.name) != nil || !slices.Contains(modes, p.mode)) {
			t.Errorf("%q is the project %+v", s, p)
		}
		var h hostDir
		if h.UnmarshalText(text) == nil && (!filepath.IsAbs(h.Source) || runfile.CheckMountTarget(h.Target) != nil || h.Mode != runfile.MountReadOnly && h.Mode != runfile.MountWritable) {
			t.Errorf("%q is the mount %+v", s, h)
		}
		if at := placeOf(s); at.sandbox != "" && at.sandbox+":"+at.path != s || at.sandbox == "" && at.path != s {
			t.Errorf("%q is the place %+v", s, at)
		}
	})
}
