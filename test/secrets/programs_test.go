package secrets

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/hutch-run/hutch/internal/pypitest"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/test/e2e"
)

//go:embed ws
var wsClient embed.FS

// TestPrograms has programs of all kinds, as their distributors ship them and without settings for hutch, reach servers
// of this machine by a rule each. The port in $PORT is the only one that is allowed.
func TestPrograms(t *testing.T) {
	e2e.Require(t, "bwrap")
	w := newWorld(t)
	share := filepath.Join(w.dir, "share")
	for _, dir := range []string{share, filepath.Join(w.dir, "repo.git")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	roots, err := os.ReadFile(filepath.Join(w.dir, "roots.pem"))
	if err != nil {
		t.Fatal(err)
	}
	w.share(share, "roots.pem", roots, 0o644)
	w.share(share, "Get.java", []byte(`
import java.net.*; import java.net.http.*;
class Get { public static void main(String[] a) throws Exception {
  System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body());
} }`), 0o644)
	w.share(share, "ws.js", []byte(`const s = new (require("ws"))(process.argv[2]);
s.on("open", () => s.send("hello")); s.on("message", m => { console.log("re: " + m); s.close() }); s.on("error", e => { console.log(e); process.exit(1) })`), 0o644)

	plain := http.NewServeMux()
	plain.HandleFunc("/user", serve)
	index := pypitest.New(t, "greeting", "1.0.0", "def f(): pass\n")
	plain.Handle("/simple/", index)
	plain.Handle("/files/", index)
	plain.HandleFunc("/ws", func(rw http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		if kind, b, err := c.Read(r.Context()); err == nil && c.Write(r.Context(), kind, b) == nil {
			_, _, _ = c.Read(r.Context()) // the other end closes
		}
	})
	npmRegistry(t, plain)
	web := httptest.NewServer(plain)
	t.Cleanup(web.Close)
	webPort := web.Listener.Addr().(*net.TCPAddr).Port

	for _, tt := range []struct {
		name, tool string
		port       func(t *testing.T) int // of the server; nil: that of HTTPS
		script     string
		want       string
	}{
		{"curl", "curl", nil, `curl -sS --cacert /share/roots.pem https://host:$PORT/user`, "nobody /user"},
		{"curl ignores proxies", "curl", nil, `https_proxy=http://192.0.2.1:3128 curl -sS --noproxy '*' --cacert /share/roots.pem https://host:$PORT/user`, "nobody /user"},
		{"wget", "wget", nil, `wget -q -O- --ca-certificate=/share/roots.pem https://host:$PORT/user`, "nobody /user"},
		{"git over HTTPS", "git", nil, `git -c http.sslCAInfo=/share/roots.pem clone -q https://host:$PORT/git/repo.git /tmp/r && cat /tmp/r/greeting`, "hello from git"},
		{"git over SSH", "sshd", w.sshd(share), `cp /share/key /tmp/key && chmod 600 /tmp/key &&
			GIT_SSH_COMMAND="ssh -i /tmp/key -o UserKnownHostsFile=/share/known_hosts" git clone -q ssh://` + userName(t) + `@host:$PORT` + w.dir + `/repo.git /tmp/r && cat /tmp/r/greeting`, "hello from git"},
		{"node fetch", "node", at(webPort), `node -e 'fetch("http://host:" + process.env.PORT + "/user").then(r => r.text()).then(console.log)'`, "nobody /user"},
		{"node ws", "npm", at(webPort), `cp /share/ws.js /tmp && NODE_PATH=/share/node_modules node /tmp/ws.js ws://host:$PORT/ws`, "re: hello"},
		{"Python requests", "pip3", at(webPort), `/usr/bin/python3 -c 'from pip._vendor import requests; import os; print(requests.get("http://host:%s/user" % os.environ["PORT"]).text)'`, "nobody /user"},
		{"pip", "pip3", at(webPort), `/usr/bin/python3 -m pip download -q --no-deps --disable-pip-version-check --trusted-host host --index-url http://host:$PORT/simple/ -d /tmp greeting && ls /tmp`, "greeting-1.0.0-py3-none-any.whl"},
		{"npm", "npm", at(webPort), `cd /tmp && npm install --no-audit --no-fund --loglevel error --registry http://host:$PORT/npm/ greeting && node -p 'require("greeting")'`, "hello from npm"},
		{"Java HttpClient", "java", at(webPort), `cp /share/Get.java /tmp && java /tmp/Get.java http://host:$PORT/user`, "nobody /user"},
		{"psql", "psql", postgres, `psql -At -h host -p $PORT -U me -d db -c 'select greeting'`, "hello from postgres"},
		{"grpcurl", "go", grpcServer, `/share/grpcurl -plaintext host:$PORT grpc.health.v1.Health/Check`, `"status": "SERVING"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e2e.Require(t, tt.tool)
			w := *w
			w.t = t
			switch tt.name {
			case "git over HTTPS", "git over SSH":
				w.repository()
			case "node ws":
				from, err := fs.Sub(wsClient, "ws")
				if err != nil {
					t.Fatal(err)
				}
				modules := filepath.Join(e2e.NPM(t, from), "node_modules")
				if err := os.CopyFS(filepath.Join(share, "node_modules"), os.DirFS(modules)); err != nil {
					t.Fatal(err)
				}
			case "grpcurl":
				w.share(share, "grpcurl", tool(t, "grpcurl"), 0o755)
			}
			port := w.port
			if tt.port != nil {
				port = tt.port(t)
			}
			file := fmt.Sprintf(`run "program" {
  backend "bwrap" { ro_bind = %s }
  command = ["sh", "-c", %q]
  env     = { PORT = "%d", JAVA_HOME = "" }
  limits { memory = "2GiB" }
  mount "/share" { source = "share" }
  network { allow = ["host:%[3]d"] }
}
`, shown(), tt.script, port)
			if err := os.WriteFile(filepath.Join(w.dir, "program.hcl"), []byte(file), 0o644); err != nil {
				t.Fatal(err)
			}
			out, _ := w.hutch(value, 0, "run", "-o", "json", "program.hcl")
			var result struct {
				Stdout, Stderr struct{ Text string }
				Network        struct{ Traffic []sdk.Traffic }
			}
			if err := json.Unmarshal([]byte(out), &result); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(result.Stdout.Text, tt.want) {
				t.Errorf("printed %q, want %q\n%s", result.Stdout.Text, tt.want, result.Stderr.Text)
			}
			if tr := result.Network.Traffic; len(tr) != 1 || !tr[0].Allowed || tr[0].Port != port || tr[0].Received == 0 {
				t.Errorf("traffic %+v, want that with port %d alone", tr, port)
			}
		})
	}
}

// share puts a file where the sandbox finds it as /share/NAME.
func (w *world) share(dir, name string, data []byte, mode os.FileMode) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, mode); err != nil {
		w.t.Fatal(err)
	}
}

func at(port int) func(*testing.T) int { return func(*testing.T) int { return port } }

func userName(t *testing.T) string {
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

// tool returns a development tool in the version that scripts/tool pins.
func tool(t *testing.T, name string) []byte {
	t.Helper()
	cmd := exec.Command("../../scripts/tool", name)
	cmd.Stderr = os.Stderr
	path, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(strings.TrimSpace(string(path)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// repository fills repo.git, which the HTTPS server serves below /git/, unless it is there.
func (w *world) repository() {
	w.t.Helper()
	if _, err := os.Stat(filepath.Join(w.dir, "repo.git", "HEAD")); err == nil {
		return
	}
	cmd := exec.Command("sh", "-ec", `git init -q --bare -b main repo.git; git init -q -b main made; cd made; mkdir src; touch src/lib.rs
		printf '[package]\nname = "greeting"\nversion = "0.1.0"\n' >Cargo.toml; echo hello from git >greeting; git add .
		git -c user.name=t -c user.email=t@t commit -q -m greeting; git push -q ../repo.git main`)
	cmd.Dir, cmd.Env = w.dir, w.env
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
}

// gitBackend serves the repositories in dir, below any first directory.
func gitBackend(dir string) http.Handler {
	path, _ := exec.Command("git", "--exec-path").Output() // without git no test asks
	serve := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Root: "/x", Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + dir, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/x/" + strings.SplitN(r.URL.Path, "/", 3)[2]
		serve.ServeHTTP(w, r)
	})
}

// npmRegistry serves the package greeting below /npm/.
func npmRegistry(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	tw := tar.NewWriter(z)
	for name, text := range map[string]string{"package.json": `{"name":"greeting","version":"1.0.0","main":"index.js"}`, "index.js": "module.exports = 'hello from npm'\n"} {
		if err := tw.WriteHeader(&tar.Header{Name: "package/" + name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(b.Bytes())
	mux.HandleFunc("/npm/greeting", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, `{"name":"greeting","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"greeting","version":"1.0.0","dist":
			{"tarball":"http://%s/npm/greeting-1.0.0.tgz","integrity":"sha512-%s"}}}}`, r.Host, base64.StdEncoding.EncodeToString(sum[:]))
	})
	mux.HandleFunc("/npm/greeting-1.0.0.tgz", func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(b.Bytes()) })
}

// sshd starts a real one, and leaves a key and what the host is known by in share.
func (w *world) sshd(share string) func(t *testing.T) int {
	return func(t *testing.T) int {
		port := freePort(t)
		run := func(program string, args ...string) *exec.Cmd {
			cmd := exec.Command(program, args...)
			cmd.Dir, cmd.Stderr = w.dir, os.Stderr
			return cmd
		}
		for name, path := range map[string]string{"host": filepath.Join(w.dir, "host_key"), "user": filepath.Join(share, "key")} {
			if err := run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path).Run(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(share, "key"), 0o644); err != nil { // the sandbox makes a private copy
			t.Fatal(err)
		}
		public, err := os.ReadFile(filepath.Join(w.dir, "host_key.pub"))
		if err != nil {
			t.Fatal(err)
		}
		w.share(share, "known_hosts", fmt.Appendf(nil, "[host]:%d %s", port, public), 0o644)
		w.share(w.dir, "sshd_config", fmt.Appendf(nil, "ListenAddress 127.0.0.1:%d\nHostKey %s/host_key\nAuthorizedKeysFile %s/key.pub\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n", port, w.dir, share), 0o600)
		path, err := exec.LookPath("sshd")
		if err != nil {
			t.Fatal(err)
		}
		args := []string{path, "-D", "-e", "-q", "-f", filepath.Join(w.dir, "sshd_config")}
		if os.Getuid() == 0 { // root's wants /run/sshd, which its service makes
			args = append([]string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none /run && mkdir /run/sshd && exec "$@"`, "sh"}, args...)
		}
		server := run(args[0], args[1:]...)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
		if !e2e.Eventually(time.Minute, func() bool {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err == nil {
				c.Close()
			}
			return err == nil
		}) {
			t.Fatal("sshd does not listen")
		}
		return port
	}
}

// freePort is one that nobody listens on now.
func freePort(t *testing.T) int {
	return listen(t, func(l net.Listener) { l.Close() })
}

// listen serves a port of the loopback until the test ends.
func listen(t *testing.T, serve func(net.Listener)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	port := l.Addr().(*net.TCPAddr).Port
	serve(l)
	return port
}

func grpcServer(t *testing.T) int {
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	t.Cleanup(s.Stop)
	return listen(t, func(l net.Listener) { go func() { _ = s.Serve(l) }() })
}

// postgres is a server that answers every query with one row, in version 3 of the protocol.
func postgres(t *testing.T) int {
	return listen(t, func(l net.Listener) {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_ = query(bufio.NewReader(c), c)
				}()
			}
		}()
	})
}

func query(r *bufio.Reader, w io.Writer) error {
	next := func() ([]byte, error) { // the body of a message, after its type
		var size uint32
		if err := binary.Read(r, binary.BigEndian, &size); err != nil || size < 4 || size > 1<<16 {
			return nil, errors.Join(err, errors.New("no message"))
		}
		body := make([]byte, size-4)
		_, err := io.ReadFull(r, body)
		return body, err
	}
	send := func(kind byte, body string) error {
		_, err := w.Write(append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...))
		return err
	}
	for {
		body, err := next()
		if err != nil || len(body) < 4 {
			return err
		}
		if binary.BigEndian.Uint32(body)>>16 == 3 {
			break
		}
		if _, err := w.Write([]byte("N")); err != nil { // neither TLS nor GSSAPI
			return err
		}
	}
	err := errors.Join(send('R', "\x00\x00\x00\x00"), send('S', "client_encoding\x00UTF8\x00"), send('Z', "I"))
	for err == nil {
		var kind byte
		if kind, err = r.ReadByte(); err == nil {
			_, err = next()
		}
		if err == nil && kind == 'Q' {
			const text = "hello from postgres"
			err = errors.Join(send('T', "\x00\x01greeting\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x19\xff\xff\xff\xff\xff\xff\x00\x00"),
				send('D', "\x00\x01\x00\x00\x00"+string(rune(len(text)))+text), send('C', "SELECT 1\x00"), send('Z', "I"))
		}
	}
	return err
}
