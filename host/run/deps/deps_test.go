package deps

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInstallersNeverTakeAPackageForAnOption(t *testing.T) {
	for _, lang := range Languages() {
		for _, in := range For(lang) {
			argv := in.Install("/out", []string{"a", "b"})
			i := slices.Index(argv, "--")
			if i < 0 || !slices.Equal(argv[i+1:], []string{"a", "b"}) || !slices.Contains(argv[:i], "/out") {
				t.Errorf("%s: %q", in.Name, argv)
			}
			if in.Interpreter == "" || len(in.Version) == 0 {
				t.Errorf("%s is incomplete", in.Name)
			}
		}
	}
	if len(For("cobol")) != 0 {
		t.Error("cobol has an installer")
	}
}

func TestCheck(t *testing.T) {
	if err := Check([]string{"requests==2.32.3", "left-pad@^1", "pkg[extra]>=1,<2", "@scope/x"}); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", " ", "--index-url=http://evil", " -r", "a\nb", "a\x00", strings.Repeat("x", 5000)} {
		if err := Check([]string{"ok", bad}); err == nil {
			t.Errorf("%.20q was taken", bad)
		}
	}
}

func TestKey(t *testing.T) {
	base := Identity{Language: "python", Packages: []string{"a==1", "b==2"}, Backend: "bwrap", Interpreter: "python3 1", Arch: "linux/amd64", Settings: map[string]string{"PIP_INDEX_URL": "x"}}
	same := base
	same.Packages = []string{"b==2", "a==1", "b==2"}
	if base.Key() != same.Key() {
		t.Error("order or repetition makes another key")
	}
	if base.Packages[0] != "a==1" || same.Packages[0] != "b==2" {
		t.Error("Key changes the list")
	}
	seen := map[string]string{base.Key(): "base"}
	for name, change := range map[string]func(*Identity){
		"language":    func(i *Identity) { i.Language = "javascript" },
		"packages":    func(i *Identity) { i.Packages = []string{"a==1", "b==3"} },
		"joined":      func(i *Identity) { i.Packages = []string{"a==1 b==2"} },
		"backend":     func(i *Identity) { i.Backend = "podman" },
		"config":      func(i *Identity) { i.Config = []byte(`{"image":"x"}`) },
		"interpreter": func(i *Identity) { i.Interpreter = "python3 2" },
		"arch":        func(i *Identity) { i.Arch = "linux/arm64" },
		"settings":    func(i *Identity) { i.Settings = map[string]string{"PIP_INDEX_URL": "y"} },
	} {
		id := base
		change(&id)
		k := id.Key()
		if other := seen[k]; other != "" {
			t.Errorf("%s has the key of %s", name, other)
		}
		if seen[k] = name; strings.Trim(k, "0123456789abcdef") != "" || len(k) != 32 {
			t.Errorf("key %q", k)
		}
	}
}

func TestSettings(t *testing.T) {
	environ := []string{
		"PATH=/bin", "AWS_SECRET_ACCESS_KEY=no", "PIP_INDEX_URL=https://user:s3cr%40t-pass@pypi.example/simple", "PIP_EXTRA_INDEX_URL=https://tok3n-alone@a.example/ https://b.example/",
		"PIP_FIND_LINKS=/opt", "https_proxy=http://proxy.example:3128", "NO_PROXY=localhost", "NPM_CONFIG_REGISTRY=http://r.example/",
		"npm_config_//r.example/:_authToken=npm-auth-t0ken", "npm_config_ignore_scripts=true", "SSL_CERT_FILE=/etc/ca.pem", "PIP_CERT=/etc/pip.pem", "NODE_EXTRA_CA_CERTS=/etc/node.pem", "EMPTY=",
	}
	py := SettingsFrom("python", environ)
	want := map[string]string{
		"PIP_INDEX_URL": "https://user:s3cr%40t-pass@pypi.example/simple", "PIP_EXTRA_INDEX_URL": "https://tok3n-alone@a.example/ https://b.example/",
		"UV_DEFAULT_INDEX": "https://user:s3cr%40t-pass@pypi.example/simple", "UV_INDEX": "https://tok3n-alone@a.example/ https://b.example/",
		"https_proxy": "http://proxy.example:3128", "NO_PROXY": "localhost",
	}
	if diff := cmp.Diff(want, py.Env); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"SSL_CERT_FILE": "/etc/ca.pem", "PIP_CERT": "/etc/pip.pem"}, py.Bundles); diff != "" {
		t.Error(diff)
	}
	js := SettingsFrom("javascript", environ)
	if diff := cmp.Diff(map[string]string{"https_proxy": "http://proxy.example:3128", "NO_PROXY": "localhost", "NPM_CONFIG_REGISTRY": "http://r.example/", "npm_config_//r.example/:_authToken": "npm-auth-t0ken"}, js.Env); diff != "" {
		t.Error(diff)
	}
	said := "Looking in https://user:s3cr%40t-pass@pypi.example, s3cr@t-pass, tok3n-alone, npm-auth-t0ken"
	all := Settings{Secrets: append(py.Secrets, js.Secrets...)}
	for _, secret := range []string{"s3cr", "tok3n", "npm-auth"} {
		if strings.Contains(all.Redact(said), secret) {
			t.Errorf("%q stays in %q", secret, all.Redact(said))
		}
	}
	for _, s := range []Settings{py, js} {
		for k, v := range s.Public() {
			if strings.Contains(v, "s3cr") || strings.Contains(v, "t0ken") || strings.Contains(v, "tok3n") {
				t.Errorf("public: %s=%s", k, v)
			}
		}
	}
	if own := SettingsFrom("python", []string{"PIP_INDEX_URL=http://a/", "UV_DEFAULT_INDEX=http://b/"}); own.Env["UV_DEFAULT_INDEX"] != "http://b/" {
		t.Errorf("uv's own setting was overwritten: %v", own.Env)
	}
}

func TestBundleNamesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, l := range bundles {
		for _, v := range l {
			n := BundleName(v)
			if seen[n] || strings.ContainsAny(n, "/ ") {
				t.Errorf("%s: %q", v, n)
			}
			seen[n] = true
		}
	}
}
