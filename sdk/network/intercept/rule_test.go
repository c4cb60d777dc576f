package intercept

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

func TestRequestRule(t *testing.T) {
	for _, tt := range []struct {
		rule, path string
		want       bool
	}{
		{"/repos/acme/*", "/repos/acme/web", true},
		{"/repos/acme/*", "/repos/acme/web/issues/1", true},
		{"/repos/acme/*", "/repos/acme/", true},
		{"/repos/acme/*", "/repos/acme", false},
		{"/repos/acme/*", "/repos/acmeweb/x", false},
		{"/repos/acme/*", "/repos/%61cme/web", true},
		{"/repos/acme/*", "/repos/acme/a%20b", true},
		{"/repos/acme/*", "/repos/acme/%e2%82%ac", true},
		{"/repos/acme/*", "/Repos/acme/web", false},
		{"/repos/acme/*", "/x/repos/acme/web", false},
		{"/repos/*/pulls", "/repos/acme/pulls", true},
		{"/repos/*/pulls", "/repos/acme/pulls/1", false},
		{"/@acme/*", "/%40acme/pkg", true},
		{"/a.b", "/aXb", false},
		{"/", "/", true},
		{"/", "/x", false},
		{"/group%2Fweb/*", "/group%2fweb/issues", true},
		{"/group%2Fweb/*", "/group/web/issues", false},
		// Paths that hosts read in different ways.
		{"/repos/acme/*", "/repos/acme/../other", false},
		{"/repos/acme/*", "/repos/acme/..", false},
		{"/repos/acme/*", "/repos/acme/%2e%2e/other", false},
		{"/repos/acme/*", "/repos/acme/%2E./other", false},
		{"/repos/acme/*", "/repos/acme/..%2fother", false},
		{"/repos/acme/*", "/repos/acme/..%5cother", false},
		{"/repos/acme/*", `/repos/acme/..\other`, false},
		{"/repos/acme/*", "/repos/acme/%252e%252e/other", false},
		{"/repos/acme/*", "/repos/acme/..;/other", false},
		{"/repos/acme/*", "/repos/acme/..;a=b/other", false},
		{"/repos/acme/*", "/repos/acme/%2e%2e%3b/other", false},
		{"/repos/acme/*", "/repos/acme/;/../other", false},
		{"/repos/acme/*", "/repos/acme//other", false},
		{"/repos/acme/*", "//repos/acme/web", false},
		{"/repos/acme/*", "/repos/acme/./web", false},
		{"/repos/acme/*", "/repos/acme/x%00", false},
		{"/repos/acme/*", "/repos/acme/x%0d%0aHost:", false},
		{"/repos/acme/*", "/repos/acme/%c0%ae%c0%ae/x", false},
		{"/repos/acme/*", "/repos/acme/%zz", false},
		{"/repos/acme/*", "/repos/acme/%2", false},
		{"/repos/acme/*", "*", false},
		{"/repos/acme/*", "", false},
	} {
		r, err := newRequestRule(sdk.SecretRule{Methods: []string{"GET"}, Paths: []string{tt.rule}})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.admits("GET", tt.path); got != tt.want {
			t.Errorf("rule %s, path %s: %v, want %v", tt.rule, tt.path, got, tt.want)
		}
		if r.admits("POST", tt.path) || r.admits("get", tt.path) {
			t.Errorf("rule %s for GET admits another method", tt.rule)
		}
	}
}

func TestRequestRuleIsChecked(t *testing.T) {
	for _, r := range []sdk.SecretRule{
		{Methods: []string{"get"}}, {Methods: []string{""}}, {Methods: []string{"G T"}},
		{Paths: []string{""}}, {Paths: []string{"repos"}}, {Paths: []string{"/a?b"}}, {Paths: []string{"/a/../b"}}, {Paths: []string{"/a//b"}},
	} {
		if _, err := newRequestRule(r); err == nil {
			t.Errorf("%v is taken", r)
		}
	}
}

// FuzzPath takes each path in the ways in which hosts read it. None may lead out of what a rule admits.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/repos/acme/web", "/repos/acme/..%2f..", "/repos/acme/%252e%252e%252fx", "/repos/acme/..;/x", `/repos/acme/..\x`, "/repos/acme/%c0%ae/"} {
		f.Add(s)
	}
	rule, err := newRequestRule(sdk.SecretRule{Paths: []string{"/repos/acme/*"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || !rule.admits("GET", u.EscapedPath()) {
			return
		}
		readings := []string{u.EscapedPath()}
		for range 2 {
			once, err := url.PathUnescape(readings[len(readings)-1])
			if err != nil {
				break
			}
			readings = append(readings, once)
		}
		for _, r := range readings {
			for _, r := range []string{r, strings.ReplaceAll(r, `\`, "/"), withoutParameters(r)} {
				if clean := path.Clean(r); clean != "/repos/acme" && !strings.HasPrefix(clean, "/repos/acme/") {
					t.Errorf("%q can be read as %q", raw, clean)
				}
			}
		}
	})
}

func withoutParameters(p string) string {
	segments := strings.Split(p, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}
