// Package secrets runs real clients in a sandbox against a server of this machine that wants a secret, as users do.
package secrets

import (
	"archive/zip"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }

const value = "ghp_the/value+of=this machine"

// world is a user with a store, and a server that answers who asked with what.
type world struct {
	t    *testing.T
	dir  string
	port int
	env  []string
}

func newWorld(t *testing.T) *world {
	dir, err := os.MkdirTemp("/var/tmp", "hutch-secrets-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost", "host"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", serve)
	mux.Handle("/git/", gitBackend(dir))
	for path, private := range map[string]http.Handler{"/private/": gitBackend(dir), "/mod/": goModules(t)} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if _, password, _ := r.BasicAuth(); password != value {
				w.Header().Set("WWW-Authenticate", "Basic")
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			private.ServeHTTP(w, r)
		})
	}
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(bytes.NewBuffer(nil), "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	home := filepath.Join(dir, "home")
	return &world{t: t, dir: dir, port: server.Listener.Addr().(*net.TCPAddr).Port,
		env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "HUTCH_HOME=" + home, "TMPDIR=" + dir, "SSL_CERT_FILE=" + roots}}
}

// serve answers "who PATH CREDENTIALS".
func serve(w http.ResponseWriter, r *http.Request) {
	_, password, _ := r.BasicAuth()
	who := "nobody"
	if r.Header.Get("Authorization") == "Bearer "+value || password == value || r.URL.Query().Get("key") == value {
		who = "owner"
	}
	fmt.Fprintf(w, "%s %s %s\n", who, r.URL.Path, r.Header.Get("Authorization"))
}

// hutch runs hutch with the value of TOKEN, and returns stdout and stderr.
func (w *world) hutch(token string, code int, args ...string) (stdout, stderr string) {
	w.t.Helper()
	cmd := exec.Command(e2e.Hutch(), args...)
	var out, errs strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.dir, append(slices.Clone(w.env), "TOKEN="+token), &out, &errs
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != code {
		w.t.Fatalf("hutch %q ended with %d, want %d\n%s%s", args, cmd.ProcessState.ExitCode(), code, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// nowhere fails where a file of the store has text.
func (w *world) nowhere(text string) {
	w.t.Helper()
	files := 0
	err := filepath.WalkDir(filepath.Join(w.dir, "home"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			w.t.Errorf("%s holds the value", path)
		}
		return err
	})
	if err != nil || files < 3 {
		w.t.Errorf("%d files, %v", files, err)
	}
}

// javaSource asks twice: by HTTP/2 as HttpClient does, and as HttpsURLConnection does.
const javaSource = `
import java.net.*; import java.net.http.*;
class Ask {
  public static void main(String[] a) throws Exception {
    var get = HttpRequest.newBuilder(URI.create(a[0])).header("Authorization", "Bearer " + System.getenv("TOKEN")).build();
    System.out.print(HttpClient.newHttpClient().send(get, HttpResponse.BodyHandlers.ofString()).body());
    var c = URI.create(a[0]).toURL().openConnection();
    c.setRequestProperty("Authorization", "Bearer " + System.getenv("TOKEN"));
    System.out.print(new String(c.getInputStream().readAllBytes()));
  }
}`

// TestClients has each client use the secret, and look at what came back. The value is in neither.
func TestClients(t *testing.T) {
	e2e.Require(t, "bwrap")
	w := newWorld(t)
	bearer := "Bearer $TOKEN"
	for _, tt := range []struct{ name, tool, script, want string }{
		{"curl", "curl", `curl -sS -H "Authorization: ` + bearer + `" $URL/user`, "owner /user Bearer PLACEHOLDER"},
		{"curl HTTP/1.1", "curl", `curl -sS --http1.1 -u "me:$TOKEN" $URL/user`, "owner /user Basic "},
		{"curl query", "curl", `curl -sS "$URL/user?key=$TOKEN"`, "owner /user"},
		{"curl denied", "curl", `curl -sS -X DELETE -H "Authorization: ` + bearer + `" $URL/user`, "hutch: denied: secret TOKEN: DELETE /user is not one of its requests"},
		{"curl without", "curl", `curl -sS $URL/user`, "nobody /user"},
		{"wget", "wget", `wget -q -O- --header "Authorization: ` + bearer + `" $URL/user`, "owner /user Bearer PLACEHOLDER"},
		{"git", "git", `git -c credential.helper='!f() { echo username=me; echo "password=$TOKEN"; }; f' clone -q $URL/private/repo.git /tmp/r && cat /tmp/r/greeting`, "hello from git"},
		{"openssl", "openssl", `printf "GET /user HTTP/1.1\r\nHost: host:$PORT\r\nConnection: close\r\nAuthorization: ` + bearer + `\r\n\r\n" |
			openssl s_client -quiet -verify_return_error -verify_hostname host -connect host:$PORT -servername host 2>/dev/null`, "owner /user Bearer PLACEHOLDER"},
		{"python", "python3", `python3 -c 'import os, urllib.request as u
print(u.urlopen(u.Request(os.environ["URL"] + "/user", headers={"Authorization": "Bearer " + os.environ["TOKEN"]})).read().decode())'`, "owner /user Bearer PLACEHOLDER"},
		{"node", "node", `node -e 'fetch(process.env.URL + "/user", {headers: {authorization: "Bearer " + process.env.TOKEN}}).then(r => r.text()).then(console.log)'`, "owner /user Bearer PLACEHOLDER"},
		{"go", "go", `GOPROXY=https://me:$TOKEN@host:$PORT/mod GONOSUMDB=* GOFLAGS=-mod=mod GOTOOLCHAIN=local $GOROOT/bin/go mod download -json example.test/greeting@v1.0.0`, `"Version": "v1.0.0"`},
		{"cargo", "cargo", `mkdir -p /tmp/c/src && cd /tmp/c && touch src/lib.rs &&
			printf '[package]\nname="c"\nversion="0.1.0"\nedition="2021"\n[dependencies]\ngreeting={git="https://me:%s@host:%s/private/repo.git"}\n' $TOKEN $PORT >Cargo.toml &&
			CARGO_HOME=/tmp/cargo cargo fetch && cat /tmp/cargo/git/checkouts/*/*/greeting`, "hello from git"},
		{"java", "java", `mkdir -p /tmp/j && cat > /tmp/j/Ask.java && java /tmp/j/Ask.java $URL/user`, "owner /user Bearer PLACEHOLDER\nowner /user Bearer PLACEHOLDER"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			need(t, tt.tool)
			w := *w
			w.t = t
			if tt.name == "git" || tt.name == "cargo" {
				w.repository()
			}
			file := fmt.Sprintf(`run "ask" {
  backend "bwrap" { ro_bind = %s }
  command = ["sh", "-c", %q]
  stdin   = %q
  env     = { URL = "https://host:%[4]d", PORT = "%[4]d", JAVA_HOME = "", GOROOT = %[5]q }
  limits { memory = "2GiB" }
  network {
    allow = ["host:%[4]d"]
    secret "TOKEN" {
      from  = env("TOKEN")
      hosts = ["host:%[4]d"]
      rule {
        methods = ["GET", "POST"]
        paths   = ["/user", "/private/*", "/mod/*"]
      }
    }
  }
}
`, shown(), "printf '%s\\n' \"$TOKEN\"; "+tt.script, javaSource, w.port, goroot())
			if err := os.WriteFile(filepath.Join(w.dir, "run.hcl"), []byte(file), 0o644); err != nil {
				t.Fatal(err)
			}
			out, _ := w.hutch(value, 0, "run", "-o", "json", "run.hcl")
			var result struct {
				Stdout, Stderr struct{ Text string }
				Network        struct{ Traffic []sdk.Traffic }
			}
			if err := json.Unmarshal([]byte(out), &result); err != nil {
				t.Fatal(err)
			}
			placeholder, rest, _ := strings.Cut(result.Stdout.Text, "\n")
			if want := strings.ReplaceAll(tt.want, "PLACEHOLDER", placeholder); !strings.HasPrefix(placeholder, "hutch-TOKEN-") || !strings.Contains(rest, want) {
				t.Errorf("printed %q, want %q\n%s", result.Stdout.Text, want, result.Stderr.Text)
			}
			var used, denied bool
			for _, d := range result.Network.Traffic {
				used = used || d.Allowed && slices.Equal(d.Secrets, []string{"TOKEN"})
				denied = denied || !d.Allowed && d.Rule == "secret TOKEN"
			}
			if used != (strings.HasPrefix(tt.want, "owner") || slices.Contains([]string{"git", "go", "cargo"}, tt.name)) || denied != (tt.name == "curl denied") {
				t.Errorf("traffic %+v", result.Network.Traffic)
			}
			if strings.Contains(out, value) {
				t.Errorf("the value is in the result: %s", out)
			}
		})
	}
	w.nowhere(value)
}

// shown lists, as HCL, what sandboxes have to see besides /usr: the settings of Debian's Java, and Go.
func shown() string {
	found, _ := filepath.Glob("/etc/java-*-openjdk")
	if root := goroot(); !strings.HasPrefix(root, "/usr/") {
		found = append(found, root)
	}
	list, _ := json.Marshal(append([]string{}, found...))
	return string(list)
}

func goroot() string {
	root, _ := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(root))
}

// need skips a test unless a tool is where sandboxes see it.
func need(t *testing.T, tool string) {
	t.Helper()
	if tool == "cargo" { // which rustup installs below the home
		if _, err := os.Stat("/usr/bin/cargo"); err != nil {
			e2e.Missing(t, tool, err.Error())
		}
	}
	e2e.Require(t, tool)
}

// goModules serves the module example.test/greeting below /mod/.
func goModules(t *testing.T) http.Handler {
	t.Helper()
	const mod = "module example.test/greeting\n"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.Create("example.test/greeting@v1.0.0/go.mod")
	if err == nil {
		_, err = f.Write([]byte(mod))
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"info": `{"Version":"v1.0.0"}`, "mod": mod, "zip": b.String()}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := files[strings.TrimPrefix(r.URL.Path, "/mod/example.test/greeting/@v/v1.0.0.")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, text)
	})
}

// TestPersistent has a sandbox keep its placeholder and its authority, while each command has the value of its time.
func TestPersistent(t *testing.T) {
	e2e.Require(t, "bwrap")
	e2e.Require(t, "curl")
	w := newWorld(t)
	host := fmt.Sprintf("host:%d", w.port)
	w.hutch("nobody-reads-this", 0, "create", "--backend", "bwrap", "--name", "box", "--secret", "TOKEN=env@"+host)
	t.Cleanup(func() { w.hutch(value, 0, "rm", "-f", "box") })
	ask := []string{"exec", "-q", "box", "--", "sh", "-c", `curl -sS -H "Authorization: Bearer $TOKEN" https://` + host + `/user`}
	first, _ := w.hutch(value, 0, ask...)
	if !strings.HasPrefix(first, "owner /user Bearer hutch-TOKEN-") {
		t.Errorf("printed %q", first)
	}
	other, _ := w.hutch("another-value-now", 0, ask...)
	if want := strings.Replace(first, "owner", "nobody", 1); other != want {
		t.Errorf("with another value: %q, want %q", other, want)
	}
	w.hutch(value, 0, "reset", "-f", "box")
	if again, _ := w.hutch(value, 0, ask...); again != first {
		t.Errorf("after a reset: %q, want %q", again, first)
	}
	_, why := w.hutch("", 125, ask...)
	if !strings.Contains(why, "secret TOKEN: variable TOKEN: the value is empty") {
		t.Errorf("without a value: %s", why)
	}
	if out, _ := w.hutch(value, 0, "inspect", "box"); !strings.Contains(out, "TOKEN from variable TOKEN, for "+host) {
		t.Errorf("inspect: %s", out)
	}
	for _, v := range []string{value, "another-value-now", "nobody-reads-this"} {
		w.nowhere(v)
	}
}
