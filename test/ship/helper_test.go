package ship

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hutch-run/hutch/host/release"
)

// What the helper pushes it gives back, byte for byte.
func TestHelper(t *testing.T) {
	repo := newRegistry(t, nil) + "/acme/hutch-backend-acme"
	dir := t.TempDir()
	manifest, m := packed(t, dir, "1.0.0")
	if err := os.WriteFile(release.SignatureName(manifest), []byte("a signature"), 0o600); err != nil {
		t.Fatal(err)
	}
	pushed, _, _ := helper(t, nil, "push", repo, manifest)
	has(t, pushed.Digest, "sha256:")
	again, _, _ := helper(t, nil, "push", repo, manifest)
	has(t, again.Error, "is there already: a version is published once")
	unsigned, _ := packed(t, dir, "1.1.0")
	helper(t, nil, "push", repo, unsigned)

	if a, _, _ := helper(t, nil, "versions", repo); strings.Join(a.Versions, " ") != "1.0.0 1.1.0" {
		t.Errorf("got %q", a.Versions)
	}
	raw, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if a, _, _ := helper(t, nil, "manifest", repo, "1.0.0"); !bytes.Equal(a.Manifest, raw) || string(a.Signature) != "a signature" {
		t.Errorf("got %q, %q", a.Manifest, a.Signature)
	}
	if a, _, _ := helper(t, nil, "manifest", repo, "1.1.0"); a.Signature != nil || len(a.Manifest) == 0 {
		t.Errorf("got %q, %q", a.Manifest, a.Signature)
	}
	for _, ar := range m.Archives {
		_, data, _ := helper(t, nil, "archive", repo, "1.0.0", ar.SHA256, fmt.Sprint(ar.Size))
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != ar.SHA256 {
			t.Errorf("%s: got %d bytes, want %d", ar.File, len(data), ar.Size)
		}
	}
	for _, args := range [][]string{{"manifest", repo, "9.9.9"}, {"versions", repo + "2"}, {"archive", repo, "1.0.0", strings.Repeat("0", 64), "5"}} {
		if a, _, code := helper(t, nil, args...); !a.None || code != 1 {
			t.Errorf("%q: %+v, %d: a missing helper is not distinguished from other errors", args, a, code)
		}
	}
}

func TestHelperRefusals(t *testing.T) {
	repo := newRegistry(t, nil) + "/acme/hutch-backend-acme"
	dir := t.TempDir()
	manifest, m := packed(t, dir, "1.0.0")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "usage: hutch-agent registry"},
		{[]string{"versions"}, "usage: hutch-agent registry"},
		{[]string{"steal", repo}, `no call "steal"`},
		{[]string{"versions", repo, "1.0.0"}, `no call "versions" with 1 arguments`},
		{[]string{"manifest", repo}, "with 0 arguments"},
		{[]string{"archive", repo, "1.0.0", "x", "5"}, "invalid hash or size"},
		{[]string{"archive", repo, "1.0.0", strings.Repeat("0", 64), "many"}, "invalid hash or size"},
		{[]string{"archive", repo, "1.0.0", strings.Repeat("0", 64), "-1"}, "invalid hash or size"},
		{[]string{"versions", "no repository"}, "invalid reference"},
		{[]string{"versions", ""}, "invalid reference"},
		{[]string{"versions", "192.0.2.1:99999/x"}, ""},
		{[]string{"push", repo, filepath.Join(dir, "none.json")}, "no such file"},
		{[]string{"push", repo, write("bad.json", "{")}, "not what it should be"},
	} {
		a, data, code := helper(t, nil, tt.args...)
		if code != 1 || a.Error == "" || len(data) > 0 {
			t.Errorf("%q ended with %d: %+v", tt.args, code, a)
		}
		has(t, a.Error, tt.want)
	}
	// What is not beside its manifest is not half published.
	if err := os.Remove(filepath.Join(dir, m.Archives[1].File)); err != nil {
		t.Fatal(err)
	}
	a, _, _ := helper(t, nil, "push", repo, manifest)
	has(t, a.Error, "no such file")
	if a, _, _ := helper(t, nil, "manifest", repo, "1.0.0"); !a.None {
		t.Errorf("half a release can be seen: %+v", a)
	}
}

// The usual ways in which docker's configuration says who one is.
func TestHelperCredentials(t *testing.T) {
	host := newRegistry(t, private)
	repo := host + "/acme/hutch-backend-acme"
	manifest, _ := packed(t, t.TempDir(), "1.0.0")
	bin := t.TempDir()
	const program = "#!/bin/sh\n[ \"$1\" = get ] || exit 1\nread -r server\necho \"{\\\"ServerURL\\\":\\\"$server\\\",\\\"Username\\\":\\\"me\\\",\\\"Secret\\\":\\\"secret\\\"}\"\n"
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-hutchtest"), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, config, want string }{
		{"nobody", `{}`, "docker login " + host},
		{"somebody else", fmt.Sprintf(`{"auths":{%q:{"auth":"bWU6d3Jvbmc="}}}`, host), "docker login " + host},
		{"for another registry", `{"auths":{"registry.example.com":{"auth":"bWU6c2VjcmV0"}}}`, "docker login " + host},
		{"no configuration", `{`, "the credentials of docker"},
		{"a helper that is not there", fmt.Sprintf(`{"credHelpers":{%q:"nosuch"}}`, host), "docker-credential-nosuch"},
		{"in the file", fmt.Sprintf(`{"auths":{%q:{"auth":"bWU6c2VjcmV0"}}}`, host), ""},
		{"a helper for this registry", fmt.Sprintf(`{"credHelpers":{%q:"hutchtest"}}`, host), ""},
		{"a helper for all", `{"credsStore":"hutchtest"}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := t.TempDir()
			if err := os.WriteFile(filepath.Join(config, "config.json"), []byte(tt.config), 0o600); err != nil {
				t.Fatal(err)
			}
			env := []string{"DOCKER_CONFIG=" + config, "PATH=" + bin + ":" + os.Getenv("PATH")}
			if tt.want != "" {
				a, _, _ := helper(t, env, "versions", repo)
				has(t, a.Error, tt.want)
				if strings.Contains(a.Error, "wrong") || strings.Contains(a.Error, "bWU6") {
					t.Errorf("the message holds a password: %q", a.Error)
				}
				return
			}
			helper(t, env, "push", repo, manifest)
			if a, _, _ := helper(t, env, "manifest", repo, "1.0.0"); len(a.Manifest) == 0 {
				t.Errorf("got %+v", a)
			}
		})
	}
}

// hostile are registries that answer what they like, each with a call and what the helper says to it.
func TestHelperHostileRegistries(t *testing.T) {
	size := 1 << 20
	hash := strings.Repeat("0", 64)
	archive := []string{"archive", "REPO", "1.0.0", hash, fmt.Sprint(size)}
	cut := func(rw http.ResponseWriter, _ *http.Request) bool {
		rw.Header().Set("Content-Length", fmt.Sprint(size))
		rw.Write(bytes.Repeat([]byte("x"), 1000))
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	for _, tt := range []struct {
		name string
		h    before
		args []string
		want string
	}{
		{"garbage for tags", func(rw http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(rw, "\x00\xff{"); return true }, []string{"versions", "REPO"}, "invalid character"},
		{"garbage for a manifest", func(rw http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(rw, "\x00\xff{"); return true }, []string{"manifest", "REPO", "1.0.0"}, "Docker-Content-Digest"},
		{"no HTTP", func(rw http.ResponseWriter, _ *http.Request) bool {
			if c, _, err := http.NewResponseController(rw).Hijack(); err == nil {
				c.Write([]byte("\x00\x01\x02 what?\r\n"))
				c.Close()
			}
			return true
		}, []string{"versions", "REPO"}, "malformed HTTP"},
		{"tags that do not end", func(rw http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(rw, `{"name":"x","tags":["`)
			for piece := bytes.Repeat([]byte("x"), 1<<16); ; {
				if _, err := rw.Write(piece); err != nil {
					return true
				}
			}
		}, []string{"versions", "REPO"}, "unexpected EOF"},
		{"a cut connection", cut, archive, "unexpected EOF"},
		{"another size", func(rw http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(rw, "short"); return true }, archive, "mismatch Content-Length"},
		{"an error", func(rw http.ResponseWriter, _ *http.Request) bool {
			rw.WriteHeader(http.StatusInternalServerError)
			return true
		}, archive, "500"},
		{"a redirect to another machine in clear", func(rw http.ResponseWriter, r *http.Request) bool {
			http.Redirect(rw, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
			return true
		}, archive, "http is only for this machine"},
		{"a redirect in circles", func(rw http.ResponseWriter, r *http.Request) bool {
			http.Redirect(rw, r, r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}, archive, "more than 5 redirects"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			repo := newRegistry(t, tt.h) + "/acme/hutch-backend-acme"
			args := strings.Fields(strings.ReplaceAll(strings.Join(tt.args, " "), "REPO", repo))
			a, data, _ := helper(t, nil, args...)
			has(t, a.Error, tt.want)
			if len(data) > size+1 {
				t.Errorf("%d bytes were taken of %d", len(data), size)
			}
		})
	}
}

// Registries send archives from elsewhere, which is nobody to show credentials to.
func TestHelperRedirect(t *testing.T) {
	var shown atomic.Value
	store := newRegistry(t, func(rw http.ResponseWriter, r *http.Request) bool {
		shown.Store("nothing" + r.Header.Get("Authorization"))
		fmt.Fprint(rw, "12345")
		return true
	})
	_, port, _ := strings.Cut(store, ":")
	host := newRegistry(t, func(rw http.ResponseWriter, r *http.Request) bool {
		if !private(rw, r) {
			http.Redirect(rw, r, "http://localhost:"+port+"/blob", http.StatusTemporaryRedirect)
		}
		return true
	})
	config := t.TempDir()
	if err := os.WriteFile(filepath.Join(config, "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":"bWU6c2VjcmV0"}}}`, host), 0o600); err != nil {
		t.Fatal(err)
	}
	_, data, code := helper(t, []string{"DOCKER_CONFIG=" + config}, "archive", host+"/acme/a", "1.0.0", strings.Repeat("0", 64), "5")
	if code != 0 || string(data) != "12345" {
		t.Errorf("got %q, %d", data, code)
	}
	if got := shown.Load(); got != "nothing" {
		t.Errorf("the other server was shown %q", got)
	}
}

// The caller may lose patience: hutch sends SIGTERM.
func TestHelperCancelled(t *testing.T) {
	asked := make(chan struct{}, 8)
	repo := newRegistry(t, func(_ http.ResponseWriter, r *http.Request) bool {
		asked <- struct{}{}
		<-r.Context().Done()
		return true
	}) + "/acme/hutch-backend-acme"
	cmd := command(t.Context(), nil, "versions", repo)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the test binary's own bound says where it hangs
	if got := cmd.ProcessState.ExitCode(); got != 1 {
		t.Errorf("ended with %d, want 1", got)
	}
	has(t, out.String(), "terminated signal received")
}
