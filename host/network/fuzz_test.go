package network

import (
	"path/filepath"
	"strings"
	"testing"
)

// FuzzFlags reads values of -p and --secret: a port is one that can be listened on and is read again as the same, and a
// secret names where its value is and a host.
func FuzzFlags(f *testing.F) {
	for _, s := range []string{"3000", "8080:3000", "0:1", "65536", "1:2:3", "127.0.0.1:80:80", "80/tcp", "TOKEN=env@api.example.org", "T=env:OTHER@a.example,*.b.example:8443",
		"T=file:/run/token@10.0.0.1", "T=ghp_value@a.example", "T=env@", "=env@x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParsePort(text); err == nil {
			again, err := ParsePort(p.String())
			if err != nil || again != p || p.Sandbox < 1 || p.Sandbox > 65535 || p.Host < 0 || p.Host > 65535 {
				t.Errorf("%q is the port %+v, and that %+v: %v", text, p, again, err)
			}
		}
		s, err := ParseSecret(text)
		switch {
		case err != nil:
		case !strings.HasPrefix(text, s.Name+"=") || s.Name == "" || len(s.Hosts) == 0:
			t.Errorf("%q is the secret %+v", text, s)
		case (s.From.Env == "") == (s.From.File == "") || s.From.File != "" && !filepath.IsAbs(s.From.File):
			t.Errorf("%q has its value at %+v", text, s.From)
		}
	})
}
