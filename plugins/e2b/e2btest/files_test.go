package e2btest_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// with adds headers to those that lead to a sandbox.
func with(h map[string]string, more ...string) map[string]string {
	out := map[string]string{}
	for k, v := range h {
		out[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

const octets = "application/octet-stream"

func TestDownload(t *testing.T) {
	c, id := daemonOf(t)
	if o := c.run(t, id, "", `printf 0123456789 > f; mkdir dir; echo x > '/tmp/a b'`); o.err != nil || o.stderr != "" {
		t.Fatalf("%+v", o)
	}
	for _, tc := range []struct {
		name, query string
		header      []string
		status      int
		body        string
	}{
		{"relative", "path=f", nil, 200, "0123456789"},
		{"absolute", "path=/home/user/f", nil, 200, "0123456789"},
		{"tilde", "path=~/f", nil, 200, "0123456789"},
		{"as root", "path=/home/user/f&username=root", nil, 200, "0123456789"},
		{"not confined", "path=../../tmp/a%20b", nil, 200, "x\n"},
		{"range", "path=f", []string{"Range", "bytes=2-4"}, 206, "234"},
		{"missing", "path=nope", nil, 404, "does not exist"},
		{"directory", "path=dir", nil, 400, "is a directory"},
		{"default directory", "", nil, 400, "is a directory"},
		{"another's home", "path=~root/x", nil, 400, "cannot expand user-specific home dir"},
		{"unknown user", "path=f&username=x", nil, 401, "error looking up user 'x'"},
		{"nothing acceptable", "path=f", []string{"Accept-Encoding", "identity;q=0"}, 406, "no acceptable encoding"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, h, text := c.do(t, "GET", "/files?"+tc.query, with(to(id), tc.header...), nil)
			if status != tc.status || status < 300 && text != tc.body || status >= 300 && (!strings.Contains(text, tc.body) || !strings.HasPrefix(text, fmt.Sprintf(`{"code":%d,`, status))) {
				t.Errorf("%d %q, want %d %q", status, text, tc.status, tc.body)
			}
			if status == 200 && h.Get("Content-Length") != fmt.Sprint(len(tc.body)) {
				t.Errorf("%v", h)
			}
		})
	}
	for _, method := range []string{"HEAD", "PUT", "DELETE"} {
		if status, _, _ := c.do(t, method, "/files?path=f", to(id), nil); status != 405 {
			t.Errorf("%s: %d", method, status)
		}
	}
}

func TestUpload(t *testing.T) {
	c, id := daemonOf(t)
	post := func(query string, header []string, body []byte) (int, string) {
		t.Helper()
		status, _, text := c.do(t, "POST", "/files?"+query, with(to(id), header...), body)
		return status, strings.TrimSpace(text)
	}
	check := func(name string, status int, text string, wantStatus int, want string) {
		t.Helper()
		if status != wantStatus || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s, want %d %s", name, status, text, wantStatus, want)
		}
	}
	status, text := post("path=a/b/f", []string{"Content-Type", octets}, []byte("content"))
	check("octets", status, text, 200, `[{"name":"f","path":"/home/user/a/b/f","type":"file"}]`)
	status, text = post("", []string{"Content-Type", octets}, []byte("x"))
	check("octets without a path", status, text, 400, "path query parameter is required")
	status, text = post("path=a", []string{"Content-Type", octets}, []byte("x"))
	check("a directory", status, text, 400, "path is a directory")
	status, text = post("path=a", []string{"Content-Type", octets}, make([]byte, 8<<20))
	check("a directory, much", status, text, 400, "path is a directory")
	status, text = post("path=a/b/f/g", []string{"Content-Type", octets}, []byte("x"))
	check("below a file", status, text, 500, "error ensuring directories: path is a file: /home/user/a/b/f")
	status, text = post("path=x", []string{"Content-Type", "text/plain"}, []byte("x"))
	check("another type", status, text, 400, "unsupported content type: text/plain")
	status, text = post("path=x", []string{"Content-Type", octets, "Content-Encoding", "br"}, []byte("x"))
	check("brotli", status, text, 400, "unsupported Content-Encoding")
	o := c.run(t, id, "", `cat a/b/f; stat -c %a a/b a/b/f; ln -s a/b/f link; chmod 600 a/b/f`)
	if o.stdout != "content755\n644\n" {
		t.Errorf("%+v", o)
	}
	status, text = post("path=link", []string{"Content-Type", octets}, []byte("new"))
	check("a symbolic link", status, text, 200, "link")
	if o := c.run(t, id, "", `cat a/b/f; stat -c %a a/b/f; test -L link`); o.stdout != "new600\n" || o.end.GetExitCode() != 0 {
		t.Errorf("a link is followed and the mode kept: %+v", o)
	}
}

// TestHosts checks which sandbox a request is for.
func TestHosts(t *testing.T) {
	c, id := daemonOf(t)
	path := "/files?path=" + url.QueryEscape("/etc/hostname")
	for _, tc := range []struct {
		name   string
		header map[string]string
		status int
		body   string
	}{
		{"headers", to(id), 200, "e2b.local\n"},
		{"host", map[string]string{"Host": "49983-" + id + ".e2b.app"}, 200, "e2b.local\n"},
		{"host with the old id", map[string]string{"Host": "49983-" + id + "-client.e2b.app:80"}, 200, "e2b.local\n"},
		{"the host counts", map[string]string{"Host": "49983-" + id + ".e2b.app", "E2b-Sandbox-Id": unknown, "E2b-Sandbox-Port": "1"}, 200, "e2b.local\n"},
		{"nothing", nil, 400, "missing header\n"},
		{"no port", map[string]string{"E2b-Sandbox-Id": id}, 400, "missing header\n"},
		{"bad port", map[string]string{"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "x"}, 400, "Invalid sandbox port\n"},
		{"another port", map[string]string{"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "8080"}, 501, "port 49983 only"},
		{"unknown", to(unknown), 502, "The sandbox was not found"},
	} {
		if status, _, text := c.do(t, "GET", path, tc.header, nil); status != tc.status || !strings.Contains(text, tc.body) {
			t.Errorf("%s: %d %q", tc.name, status, text)
		}
	}
}
