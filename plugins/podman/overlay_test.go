package main

import (
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// TestOverlayStrategies forces each strategy, and looks whether inspect tells it.
func TestOverlayStrategies(t *testing.T) {
	b := newBackend()
	rootless := b.machine().rootless
	for _, over := range []string{overlayAuto, overlayNative, overlayUnion, overlayInside} {
		t.Run(over, func(t *testing.T) {
			spec := private(t, project(t))
			cfg := *spec.Config.(*Config)
			cfg.Overlay = over
			spec.Config = &cfg
			if over == overlayInside && !rootless {
				_, _, err := makeSandbox(t, b, spec)
				if sdk.ReasonOf(err) != sdk.ReasonConfig || !strings.Contains(err.Error(), "no boundary") {
					t.Fatalf("as root: %v; want a refusal", err)
				}
				return
			}
			s := newSandbox(t, b, spec)
			want := over
			if over == overlayAuto {
				want = overlayNative
			}
			if st, err := s.Inspect(t.Context()); err != nil || st.Details["overlay"] != want {
				t.Errorf("inspect says %v, %v; want overlay %s", st.Details, err, want)
			}
			if want == overlayUnion {
				if got := must(t, s, "cat "+lowerPath+"/a.txt; ls -A | grep -v output; ! echo x > "+lowerPath+"/new"); got != "a\n" {
					t.Errorf("%q", got)
				}
			} else if got := must(t, s, "cat a.txt; rm a.txt; echo x > new; rm -r dir; mkdir dir; ls -A | grep -v output; ls dir"); got != "a\nb.txt\ndir\nnew\n" {
				t.Errorf("%q", got)
			}
			if r := sh(t, s, "grep -E '^Cap(Eff|Bnd|Prm)' /proc/self/status"); strings.Count(r.out, "0000000000000000") != 3 {
				t.Errorf("a command has capabilities: %s", r.out)
			}
		})
	}
}
