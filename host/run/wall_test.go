package run

import (
	"bytes"
	"context"
	"crypto/tls"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/sdk"
)

var puts = sdk.Description{Networks: filters.Networks, Secrets: true}

// nowhere fails for every file below dirs that holds text.
func nowhere(t *testing.T, text string, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if bytes.Contains(b, []byte(text)) {
				t.Errorf("%s holds the value", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The command has the placeholder and what it needs to trust the wall; the backend has the value, and no record does.
func TestNetworkSecrets(t *testing.T) {
	p := &plain{desc: puts}
	w := newWorld(t, p)
	p.ready = func(*sdk.Ready) {
		st, err := os.Stat(p.specs[0].Mounts[0].Source)
		if err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("a container's user cannot read the certificates: %v, %v", st.Mode(), err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("value-of-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.opt.Environ = []string{"PATH=" + os.Getenv("PATH"), "FROM_HERE=" + secret}
	src := shell("echo $TOKEN; echo $SSL_CERT_FILE $PIP_CERT; cat $HUTCH_MOUNT/wgetrc", `
  env = { PIP_CERT = "mine" }
  network {
    allow = ["api.example", "*.files.example:8443"]
    secret "TOKEN" {
      from  = env("FROM_HERE")
      hosts = ["api.example", "*.files.example:8443"]
      rule {
        methods = ["GET"]
        paths   = ["/repos/acme/*"]
      }
    }
    secret "KEY" {
      from  = file("`+dir+`/key")
      hosts = ["api.example"]
    }
    secret "OUT" {
      command = ["sh", "-c", "printf value-of-%s the-command"]
      ttl     = "1h"
      hosts   = ["api.example"]
    }
  }`)
	r := w.run(src, Streams{})
	if len(p.commands) != 1 || len(p.specs) != 1 {
		t.Fatalf("%+v", r.Error)
	}
	c, spec := p.commands[0], p.specs[0]
	lines := strings.Split(r.Stdout.Text, "\n")
	if len(lines) < 2 || !strings.HasPrefix(lines[0], "hutch-TOKEN-") || lines[1] != "/opt/hutch/trust/bundle.crt mine" {
		t.Errorf("the command printed %q", lines)
	}
	want := []sdk.Secret{
		{Name: "TOKEN", Placeholder: lines[0], Value: secret, Hosts: []string{"api.example", "*.files.example:8443"}, Rules: []sdk.SecretRule{{Methods: []string{"GET"}, Paths: []string{"/repos/acme/*"}}}},
		{Name: "KEY", Placeholder: c.Env["KEY"], Value: "value-of-the-file", Hosts: []string{"api.example"}},
		{Name: "OUT", Placeholder: c.Env["OUT"], Value: "value-of-the-command", Hosts: []string{"api.example"}},
	}
	if diff := cmp.Diff(want, c.Secrets); diff != "" {
		t.Error(diff)
	}
	if _, err := tls.X509KeyPair(c.Authority.Certificate, c.Authority.Key); err != nil {
		t.Errorf("authority: %v", err)
	}
	if len(spec.Mounts) != 1 || spec.Mounts[0].Target != trustDir || !spec.Mounts[0].ReadOnly {
		t.Fatalf("mounts %+v", spec.Mounts)
	}
	if _, err := os.Stat(spec.Mounts[0].Source); !os.IsNotExist(err) {
		t.Errorf("the certificates are still there: %v", err)
	}
	for _, s := range want {
		nowhere(t, s.Value, w.store.Paths().Data, r.Dir)
	}
	nowhere(t, string(c.Authority.Key), w.store.Paths().Data, r.Dir)

	plan, err := w.runner().Plan(context.Background(), w.load(src)[0])
	if err != nil || !plan.OK {
		t.Fatalf("%v %+v", err, plan)
	}
	var b strings.Builder
	if err := plan.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"secret     TOKEN from variable FROM_HERE, for api.example, *.files.example:8443: GET /repos/acme/*",
		`secret     OUT from command ["sh" "-c" "printf value-of-%s the-command"], kept for 1h0m0s, for api.example`,
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("the plan lacks %q:\n%s", line, b.String())
		}
	}
}

func TestWhatCommandsTrust(t *testing.T) {
	dir := t.TempDir()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	other, err := newWall([]network.Secret{{Name: "A", Hosts: []string{"a.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(roots, []byte(other.Certificate), 0o644); err != nil {
		t.Fatal(err)
	}
	own, err := newWall([]network.Secret{{Name: "A", Hosts: []string{"a.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	if own.Placeholders["A"] == other.Placeholders["A"] {
		t.Error("two sandboxes have one placeholder")
	}
	if err := own.write(dir, []string{"SSL_CERT_FILE=" + roots}); err != nil {
		t.Fatal(err)
	}
	for name, certs := range map[string][]string{"ca.crt": {own.Certificate}, "bundle.crt": {own.Certificate, other.Certificate}} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range certs {
			if !strings.Contains(string(b), c) {
				t.Errorf("%s lacks a certificate", name)
			}
		}
	}
}

func TestNetworkSecretsThatCannotBe(t *testing.T) {
	w := newWorld(t, &plain{desc: filters}, &plain{desc: sdk.Description{Name: "other", Networks: puts.Networks, Secrets: true}})
	w.opt.Environ = []string{"TOKEN=" + secret, "SHORT=abc"}
	with := func(backends, from string) string {
		return "run \"r\" {\n" + backends + "\n  command = [\"true\"]\n  network {\n    allow = [\"a.example\"]\n    secret \"TOKEN\" {\n" + from + "\n hosts = [\"a.example\"]\n }\n }\n}\n"
	}
	const plainBlock, otherBlock = `backend "plain" {}`, `backend "other" {}`
	if r := w.run(with(plainBlock+"\n"+otherBlock, `from = env("TOKEN")`), Streams{}); r.Backend.Name != "other" || !r.OK {
		t.Errorf("%+v", r)
	}
	for _, tt := range []struct{ name, src, want string }{
		{"backend", with(plainBlock, `from = env("TOKEN")`), `backend "plain" is not able: it cannot put in secrets`},
		{"variable", with(otherBlock, `from = env("NOPE")`), "secret TOKEN: the variable NOPE is not set"},
		{"short", with(otherBlock, `from = env("SHORT")`), "secret TOKEN: variable SHORT: the value has less than 8 bytes"},
		{"file", with(otherBlock, `from = file("/nope")`), "secret TOKEN: file /nope: no such file or directory"},
		{"command", with(otherBlock, `command = ["sh", "-c", "printf prin%s ted; echo why >&2; exit 3"]`), `exit status 3: why`},
	} {
		r := w.run(tt.src, Streams{})
		if r.Error == nil || len(r.Error.Diagnostics) != 1 || !strings.Contains(r.Error.Diagnostics[0].Summary, tt.want) || r.Error.Diagnostics[0].Range == nil {
			t.Errorf("%s: %+v", tt.name, r.Error)
			continue
		}
		if text := r.Error.Diagnostics[0].Summary; strings.Contains(text, secret) || strings.Contains(text, "printed") {
			t.Errorf("%s: %s", tt.name, text)
		}
	}
	def := Overrides{Network: network.Network{Mode: sdk.NetworkNone}}.Apply(w.load(with(otherBlock, `from = env("TOKEN")`))[0])
	r, err := w.runner().Run(context.Background(), def, Streams{})
	if err != nil || r.Error == nil || !strings.Contains(r.Error.Diagnostics[0].Summary, "needs a network, but network.mode is") {
		t.Errorf("%v %+v", err, r.Error)
	}
}
