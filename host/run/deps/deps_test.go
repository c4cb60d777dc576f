package deps

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/result"
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

func TestNoYoungReleases(t *testing.T) {
	at := time.Date(2026, 11, 20, 1, 2, 3, 0, time.FixedZone("", 3600))
	for _, lang := range Languages() {
		for _, in := range For(lang) {
			argv := in.Command("/out", []string{"a"}, at)
			if i := slices.Index(argv, in.Before+"2026-11-20T00:02:03Z"); in.Before == "" || i < 0 || i > slices.Index(argv, "--") {
				t.Errorf("%s: %q", in.Name, argv)
			}
			if diff := cmp.Diff(in.Install("/out", []string{"a"}), in.Command("/out", []string{"a"}, time.Time{})); diff != "" {
				t.Errorf("%s: -want +got\n%s", in.Name, diff)
			}
		}
	}
}

func TestFetched(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("b-2.dist-info/METADATA", "Metadata-Version: 2.1\nName: b\nVersion: 2\n\nName: not this\n")
	write("a-1.dist-info/METADATA", "Name: a\nVersion: 1\nbroken\n")
	write("a-1.dist-info/RECORD", "")
	write("none.dist-info/other", "")
	write("a/METADATA", "Name: c\n")
	write("node_modules/.package-lock.json", `{"packages":{"":{"version":"0"},"node_modules/x":{"version":"1","integrity":"sha512-AA=="},"node_modules/x/node_modules/@s/y":{"version":"2"},"node_modules/alias":{"name":"real","version":"3"}}}`)
	const empty = "sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for lang, want := range map[string][]result.Package{
		"python":     {{Name: "a", Version: "1", Digest: empty}, {Name: "b", Version: "2"}},
		"javascript": {{Name: "@s/y", Version: "2"}, {Name: "real", Version: "3"}, {Name: "x", Version: "1", Digest: "sha512-AA=="}},
		"go":         nil,
	} {
		got, err := Fetched(lang, dir)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v -want +got\n%s", lang, err, diff)
		}
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "b-2.dist-info/METADATA")), os.Symlink("/etc/passwd", filepath.Join(dir, "b-2.dist-info/METADATA"))); err != nil {
		t.Fatal(err)
	}
	if got, err := Fetched("python", dir); err == nil {
		t.Errorf("a link that leads out was followed: %+v", got)
	}
}

func FuzzFetched(f *testing.F) {
	f.Add([]byte("Name: a\nVersion: 1\n"), []byte(`{"packages":{"node_modules/x":{"version":"1"}}}`))
	f.Fuzz(func(t *testing.T, metadata, lock []byte) {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "a.dist-info"), 0o755), os.Mkdir(filepath.Join(dir, "node_modules"), 0o755),
			os.WriteFile(filepath.Join(dir, "a.dist-info/METADATA"), metadata, 0o644),
			os.WriteFile(filepath.Join(dir, "node_modules/.package-lock.json"), lock, 0o644)); err != nil {
			t.Fatal(err)
		}
		for _, lang := range Languages() {
			_, _ = Fetched(lang, dir)
		}
	})
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
	if diff := cmp.Diff(map[string]string{"SSL_CERT_FILE": "/etc/ca.pem", "NODE_EXTRA_CA_CERTS": "/etc/node.pem"}, js.Bundles); diff != "" {
		t.Error(diff)
	}
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

func TestTrust(t *testing.T) {
	machine := filepath.Join(t.TempDir(), "machine.pem")
	if err := os.WriteFile(machine, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer func(l []string) { machineBundles = l }(machineBundles)
	machineBundles = []string{"/nonexistent/ca.pem", machine, "/etc/passwd"}
	for name, tc := range map[string]struct {
		lang    string
		environ []string
		want    map[string]string
	}{
		"the machine's for npm":     {"javascript", nil, map[string]string{"NODE_EXTRA_CA_CERTS": machine}},
		"the machine's for pip":     {"python", nil, map[string]string{"PIP_CERT": machine, "SSL_CERT_FILE": machine}},
		"another variable":          {"javascript", []string{"SSL_CERT_FILE=/a"}, map[string]string{"SSL_CERT_FILE": "/a", "NODE_EXTRA_CA_CERTS": "/a"}},
		"that of another installer": {"python", []string{"NODE_EXTRA_CA_CERTS=/a"}, map[string]string{"PIP_CERT": "/a", "SSL_CERT_FILE": "/a"}},
		"its own":                   {"python", []string{"PIP_CERT=/a", "SSL_CERT_FILE=/b"}, map[string]string{"PIP_CERT": "/a", "SSL_CERT_FILE": "/b"}},
		"no installer":              {"cobol", nil, map[string]string{}},
	} {
		if diff := cmp.Diff(tc.want, SettingsFrom(tc.lang, tc.environ).Bundles); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	machineBundles = nil
	if got := SettingsFrom("python", nil).Bundles; len(got) != 0 {
		t.Errorf("without a bundle: %v", got)
	}
}

func TestFixNamesCertificates(t *testing.T) {
	for output, want := range map[string]string{
		"npm error code SELF_SIGNED_CERT_IN_CHAIN":                         "NODE_EXTRA_CA_CERTS",
		"npm error code UNABLE_TO_GET_ISSUER_CERT_LOCALLY":                 "NODE_EXTRA_CA_CERTS",
		"npm error code UNABLE_TO_VERIFY_LEAF_SIGNATURE":                   "NODE_EXTRA_CA_CERTS",
		"npm error 404 Not Found - GET http://127.0.0.1/nope":              "check the names",
		"npm error code ECONNREFUSED":                                      "check the names",
		"npm error reason: unable to verify the first certificate; really": "NODE_EXTRA_CA_CERTS",
	} {
		if got := Fix("javascript", output); !strings.Contains(got, want) {
			t.Errorf("%s: %s", output, got)
		}
	}
	if got := Fix("python", "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] ..."); !strings.Contains(got, "PIP_CERT") {
		t.Error(got)
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

// FuzzSettings sees to it that no credential of a registry's address is left in what may be shown.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{"https://user:secret@host/simple", "https://token@host https://a:b%40c%2f@d/", "http://u:p@ss@h", "://@", "https://user:se\ncret@host", "x=y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		s := SettingsFrom("python", []string{"PIP_INDEX_URL=" + value, "PATH=/x", value})
		for _, field := range strings.Fields(value) {
			u, err := url.Parse(field)
			if err != nil || u.Host == "" || u.User == nil {
				continue
			}
			if password, ok := u.User.Password(); ok && len(password) >= 4 && strings.Contains(strings.ReplaceAll(s.Public()["PIP_INDEX_URL"], "(sensitive)", ""), password) {
				t.Errorf("%q is shown as %q", value, s.Public()["PIP_INDEX_URL"])
			}
		}
		if _, ok := s.Env["PATH"]; ok {
			t.Error("PATH is passed")
		}
	})
}
