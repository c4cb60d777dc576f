package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// TestOverlayStrategies forces each strategy, and checks that inspect reports it.
func TestOverlayStrategies(t *testing.T) {
	t.Parallel()
	b := newBackend()
	for _, over := range []string{overlayAuto, overlayNative, overlayCopy} {
		t.Run(over, func(t *testing.T) {
			spec := private(t, project(t))
			cfg := *spec.Config.(*Config)
			cfg.Overlay = over
			spec.Config = &cfg
			s := newSandbox(t, b, spec)
			want := over
			if over == overlayAuto {
				want = overlayNative
			}
			if st, err := s.Inspect(t.Context()); err != nil || st.Details["overlay"] != want {
				t.Errorf("inspect says %v, %v; want overlay %s", st.Details, err, want)
			}
			const script = "cat a.txt; rm a.txt; echo x > new; rm -r dir; mkdir dir; ls -A | grep -v output; ls dir"
			if got := must(t, s, script); got != "a\nb.txt\ndir\nnew\n" {
				t.Errorf("%q", got)
			}
			changed := func(when, want string) {
				t.Helper()
				list, err := s.Changes(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, c := range list {
					got = append(got, string(c.Kind)+" "+c.Path)
				}
				if strings.Join(got, ", ") != want {
					t.Errorf("%s: the changes are %q, want %q", when, got, want)
				}
			}
			const changes = "deleted a.txt, deleted dir/c.txt, deleted dir/d.txt, added new"
			changed("made", changes)
			if err := s.Reset(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			changed("reset", changes)
			if got := must(t, s, "ls -A | grep -v output"); got != "b.txt\ndir\nnew\n" {
				t.Errorf("after a reset: %q", got)
			}
			if err := s.Reset(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			changed("hard reset", "")
			if r := sh(t, s, "grep -E '^Cap(Eff|Bnd|Prm)' /proc/self/status"); strings.Count(r.out, "0000000000000000") != 3 {
				t.Errorf("a command has capabilities: %s", r.out)
			}
		})
	}
}

// TestReadOnlyWorkspace refuses every write, also after a reset and for another process.
func TestReadOnlyWorkspace(t *testing.T) {
	t.Parallel()
	dir := project(t)
	spec := private(t, dir)
	spec.Workspace.Mode = sdk.WorkspaceReadOnly
	s := newSandbox(t, newBackend(), spec, kept)
	for _, when := range []string{"made", "reset"} {
		if got := must(t, s, "cat a.txt; echo o > /output/o; for c in 'echo x > a.txt' 'echo x > new' 'rm b.txt' 'mv dir d' 'mkdir x' 'chmod 777 .'; do ! sh -c \"$c\" 2>/dev/null || echo $c; done"); got != "a\n" {
			t.Errorf("%s: %q; want what a.txt has, and every write refused", when, got)
		}
		if data, err := os.ReadFile(filepath.Join(s.dirs.output(), "o")); err != nil || string(data) != "o\n" {
			t.Errorf("%s: the output is %q, %v", when, data, err)
		}
		if err := s.Reset(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	h, err := s.handle()
	if err != nil {
		t.Fatal(err)
	}
	again, err := newBackend().Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.(*sandbox).ready.Output; got != "/output" {
		t.Errorf("another process finds the output at %s, want /output", got)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 3 {
		t.Errorf("the project has %v, %v; want what it had", names, err)
	}
}
