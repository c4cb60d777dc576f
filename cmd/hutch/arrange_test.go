package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	k, err := newParser(&grammar{}, newUI(os.Stdin, os.Stdout, os.Stderr))
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
	k, err := newParser(&grammar{}, newUI(os.Stdin, os.Stdout, os.Stderr))
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
