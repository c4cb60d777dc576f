package e2btest_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/url"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/filesystem"
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
	status, h, text := c.do(t, "GET", "/files?path=f", with(to(id), "Accept-Encoding", "gzip, deflate"), nil)
	z, err := gzip.NewReader(strings.NewReader(text))
	if status != 200 || err != nil || h.Get("Content-Encoding") != "gzip" {
		t.Fatalf("%d %v %v", status, h, err)
	}
	if b, err := io.ReadAll(z); string(b) != "0123456789" || err != nil {
		t.Errorf("%q %v", b, err)
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
	status, text = post("path=x", []string{"Content-Type", octets, "Content-Encoding", "gzip"}, []byte("x"))
	check("no gzip", status, text, 400, "error decompressing request body")
	status, text = post("path=x", []string{"Content-Type", octets, "Content-Encoding", "br"}, []byte("x"))
	check("brotli", status, text, 400, "unsupported Content-Encoding")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte("unzipped"))
	z.Close()
	status, text = post("path=/tmp/z&username=root", []string{"Content-Type", octets, "Content-Encoding", "gzip"}, zipped.Bytes())
	check("gzip", status, text, 200, `"path":"/tmp/z"`)

	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	for _, part := range [][3]string{{"file", "/tmp/m/one", "1"}, {"other", "/tmp/m/ignored", "x"}, {"file", "m/two", "2"}} {
		w, _ := m.CreateFormFile(part[0], part[1])
		w.Write([]byte(part[2]))
	}
	m.Close()
	status, text = post("", []string{"Content-Type", m.FormDataContentType()}, form.Bytes())
	check("multipart", status, text, 200, `[{"name":"one","path":"/tmp/m/one","type":"file"},{"name":"two","path":"/home/user/m/two","type":"file"}]`)
	status, text = post("path=both", []string{"Content-Type", m.FormDataContentType()}, form.Bytes())
	check("multipart, twice the same", status, text, 400, "you cannot upload multiple files to the same path")
	status, text = post("", []string{"Content-Type", m.FormDataContentType()}, form.Bytes()[:200])
	check("multipart that breaks off", status, text, 500, "error")

	o := c.run(t, id, "", `cat a/b/f /tmp/z /tmp/m/one m/two; stat -c %a a/b a/b/f; ls /tmp/m; ln -s a/b/f link; chmod 600 a/b/f`)
	if o.stdout != "contentunzipped12"+"755\n644\none\n" {
		t.Errorf("%+v", o)
	}
	status, text = post("path=link", []string{"Content-Type", octets}, []byte("new"))
	check("a symbolic link", status, text, 200, "link")
	if o := c.run(t, id, "", `cat a/b/f; stat -c %a a/b/f; test -L link`); o.stdout != "new600\n" || o.end.GetExitCode() != 0 {
		t.Errorf("a link is followed and the mode kept: %+v", o)
	}
}

func TestFilesystem(t *testing.T) {
	c, id := daemonOf(t)
	f, ctx := c.files(id), context.Background()
	if o := c.run(t, id, "", `mkdir -p d/e/g; echo x > d/f; ln -s d/f to-f; ln -s d to-d; ln -s nowhere broken; ln -s loop loop`); o.stderr != "" {
		t.Fatalf("%+v", o)
	}
	stat := func(path string) (*filesystem.EntryInfo, error) {
		res, err := f.Stat(ctx, &filesystem.StatRequest{Path: path})
		if err != nil {
			return nil, err
		}
		return res.GetEntry(), nil
	}
	for path, want := range map[string]string{
		"d":         "d /home/user/d FILE_TYPE_DIRECTORY drwxr-xr-x ",
		"d/f":       "f /home/user/d/f FILE_TYPE_FILE -rw-r--r-- ",
		"to-f":      "to-f /home/user/to-f FILE_TYPE_FILE Lrwxrwxrwx /home/user/d/f",
		"to-d":      "to-d /home/user/to-d FILE_TYPE_DIRECTORY Lrwxrwxrwx /home/user/d",
		"broken":    "broken /home/user/broken FILE_TYPE_UNSPECIFIED Lrwxrwxrwx /home/user/broken",
		"/dev/null": "null /dev/null FILE_TYPE_UNSPECIFIED Dcrw-rw-rw- ",
	} {
		e, err := stat(path)
		if got := fmt.Sprintf("%s %s %s %s %s", e.GetName(), e.GetPath(), e.GetType(), e.GetPermissions(), e.GetSymlinkTarget()); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", path, got, err, want)
		}
	}
	list := func(path string, depth uint32) (got []string, err error) {
		res, err := f.ListDir(ctx, &filesystem.ListDirRequest{Path: path, Depth: depth})
		if err != nil {
			return nil, err
		}
		for _, e := range res.GetEntries() {
			got = append(got, e.GetPath())
		}
		return got, nil
	}
	for _, tc := range []struct {
		path  string
		depth uint32
		want  string
	}{
		{"d", 0, "/home/user/d/e /home/user/d/f"},
		{"d", 2, "/home/user/d/e /home/user/d/e/g /home/user/d/f"},
		{"to-d", 9, "/home/user/to-d/e /home/user/to-d/e/g /home/user/to-d/f"},
	} {
		if got, err := list(tc.path, tc.depth); err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%s %d: %v %v, want %s", tc.path, tc.depth, got, err, tc.want)
		}
	}
	code := func(name string, err error, want connect.Code) {
		t.Helper()
		if connect.CodeOf(err) != want || err == nil {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	_, err := stat("missing")
	code("stat", err, connect.CodeNotFound)
	_, err = list("missing", 1)
	code("list", err, connect.CodeNotFound)
	_, err = list("d/f", 1)
	code("list a file", err, connect.CodeInvalidArgument)
	_, err = list("loop", 1)
	code("list a loop", err, connect.CodeFailedPrecondition)
	_, err = f.MakeDir(ctx, &filesystem.MakeDirRequest{Path: "d/e"})
	code("make a directory twice", err, connect.CodeAlreadyExists)
	_, err = f.MakeDir(ctx, &filesystem.MakeDirRequest{Path: "d/f"})
	code("make a directory of a file", err, connect.CodeInvalidArgument)
	if res, err := f.MakeDir(ctx, &filesystem.MakeDirRequest{Path: "n/e/w"}); err != nil || res.GetEntry().GetPath() != "/home/user/n/e/w" {
		t.Errorf("%v %v", res, err)
	}
	_, err = f.Move(ctx, &filesystem.MoveRequest{Source: "missing", Destination: "x"})
	code("move", err, connect.CodeNotFound)
	_, err = f.Move(ctx, &filesystem.MoveRequest{Source: "d/f", Destination: "/dev/shm/f"})
	code("move to another file system", err, connect.CodeInternal)
	if res, err := f.Move(ctx, &filesystem.MoveRequest{Source: "d/f", Destination: "p/q"}); err != nil || res.GetEntry().GetPath() != "/home/user/p/q" {
		t.Errorf("%v %v", res, err)
	}
	for range 2 { // what is not there is no error
		if _, err := f.Remove(ctx, &filesystem.RemoveRequest{Path: "d"}); err != nil {
			t.Error(err)
		}
	}
	_, err = stat("d/e")
	code("removed", err, connect.CodeNotFound)
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
		{"another port", map[string]string{"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "8123"}, 501, "does not reach the ports of sandboxes"},
		{"unknown", to(unknown), 502, "The sandbox was not found"},
	} {
		if status, _, text := c.do(t, "GET", path, tc.header, nil); status != tc.status || !strings.Contains(text, tc.body) {
			t.Errorf("%s: %d %q", tc.name, status, text)
		}
	}
}
