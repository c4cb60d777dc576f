package confined

import (
	"strings"
	"testing"
)

func TestConfined(t *testing.T) {
	for name, tc := range map[string]struct {
		status string
		want   bool
	}{
		"a host":                {"Name:\thutch\nCapBnd:\t000001ffffffffff\nSeccomp:\t0\nSeccomp_filters:\t0\n", false},
		"a filter":              {"CapBnd:\t000001ffffffffff\nSeccomp:\t2\n", true},
		"without CAP_SYS_ADMIN": {"CapBnd:\t00000000a80425fb\nSeccomp:\t0\n", true},
		"nothing is known":      {"", false},
	} {
		if got := read([]byte(tc.status)); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFixes(t *testing.T) {
	for engine, want := range map[string]string{
		"podman": "unmask=ALL", "docker": "systempaths=unconfined", "kubernetes": "securityContext", "lxc": "outside", "": "outside",
	} {
		if got := fixes(engine); !strings.Contains(got, want) || !strings.Contains(got, "privileged") {
			t.Errorf("%s: %s", engine, got)
		}
	}
}
