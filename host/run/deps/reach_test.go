package deps

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReach(t *testing.T) {
	mirrors := map[string]bool{}
	for _, name := range slices.Concat(registries["python"], registries["javascript"]) {
		for _, rule := range reach(t.Context(), name, "443")[1:] {
			mirrors[rule] = true
		}
	}
	for name, tc := range map[string]struct {
		lang     string
		env      map[string]string
		packages []string
		want     []string
	}{
		"python":      {"python", nil, []string{"requests==2.32.3"}, []string{"files.pythonhosted.org:443", "pypi.org:443"}},
		"an index":    {"python", map[string]string{"PIP_INDEX_URL": "http://user:pass@127.0.0.1:3141/simple/"}, nil, []string{"127.0.0.1:3141", "files.pythonhosted.org:443", "pypi.org:443"}},
		"localhost":   {"javascript", map[string]string{"NPM_CONFIG_REGISTRY": "http://localhost:4873/", "npm_config_//r.example/:_authToken": "https://t"}, nil, []string{"127.0.0.1:4873", "localhost:4873", "registry.npmjs.org:443"}},
		"a proxy":     {"javascript", map[string]string{"https_proxy": "http://10.1.2.3:3128", "NO_PROXY": "localhost,10.0.0.0/8"}, nil, []string{"10.1.2.3:3128", "registry.npmjs.org:443"}},
		"more than 1": {"python", map[string]string{"PIP_EXTRA_INDEX_URL": "https://10.0.0.1/a https://10.0.0.2:8443/b"}, nil, []string{"10.0.0.1:443", "10.0.0.2:8443", "files.pythonhosted.org:443", "pypi.org:443"}},
		"packages by URL": {"python", nil, []string{"a @ git+https://192.0.2.1/a.git@main", "https://192.0.2.2:81/b.whl", "./c", "-e", "d>=1"},
			[]string{"192.0.2.1:443", "192.0.2.2:81", "files.pythonhosted.org:443", "pypi.org:443"}},
		"what is no rule": {"javascript", map[string]string{"NPM_CONFIG_REGISTRY": "http://[::1]:4873/", "NPM_CONFIG_PROXY": "file:///x"}, nil, []string{"registry.npmjs.org:443"}},
	} {
		got := slices.DeleteFunc(Settings{Env: tc.env}.Reach(t.Context(), tc.lang, tc.packages), func(rule string) bool {
			return mirrors[rule] // where this machine finds the registries
		})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
