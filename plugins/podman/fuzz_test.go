package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

// FuzzDecoders gives the same bytes to everything that reads a file of a sandbox, of its image or of the kernel, an
// answer of podman, or an attribute with a grammar.
func FuzzDecoders(f *testing.F) {
	for _, s := range []string{
		`{"dir":"/s/x","owner":"o"}`, `{"dir":"s"}`, `null`, `[]`,
		`{"Config":{"User":"1:x"},"Limits":{"PIDs":-1},"Workspace":{"Source":"/a"},"Overlay":"copy","Mounts":[{}],"DefaultMemory":-1}`, `{"Config":null}`,
		`[{"Labels":{"run.hutch.sandbox":"x","run.hutch.handle":"{\"dir\":\"/s\"}"}},{"Labels":null},{"Labels":{"run.hutch.sandbox":"y","run.hutch.handle":"{"}}]`,
		"root:x:0:0\nx:x:-1:0\nx:x:99999:0\nx:x:1000:0\n", "x:x:01", "1000:100", "65535", "+1", "-option",
		"31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n33 31 0:30 /a /b\\040 rw - cgroup cgroup rw,memory\n",
		"time=x level=warning\ntime=y level=error msg=a\nError: no such container\nmore", strings.Repeat("x", 3000),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text := string(data)
		if h, err := readHandle(sdk.Handle{ID: "x", Data: data}); err == nil && !filepath.IsAbs(h.Dir) {
			t.Errorf("handle: %+v", h)
		}
		if k, err := parseSaved(data); err == nil {
			k.Relocate("/a/b/x", "/c/b/x")
			again, err := json.Marshal(k)
			if err != nil {
				t.Fatal(err)
			}
			if same, err := parseSaved(again); err != nil || !slices.Contains(overlays, k.Overlay) || !cmp.Equal(k, same) {
				t.Errorf("saved: %v %s", err, cmp.Diff(k, same))
			}
		}
		list, _ := parseList(data)
		for _, h := range list {
			if h.ID == "" || !json.Valid(h.Data) {
				t.Errorf("list: %+v", h)
			}
		}
		if n, ok := userIn(text, "x"); ok && (n < 0 || n > maxUser) {
			t.Errorf("passwd: user %d", n)
		}
		if uid, gid, err := parseUser(text); err == nil && text != "" && text != fmt.Sprint(uid) && text != fmt.Sprintf("%d:%d", uid, gid) {
			t.Errorf("user %q: %d %d", text, uid, gid)
		}
		if isImage(text) && strings.HasPrefix(text, "-") || isPlainPath(text) && strings.ContainsAny(text, ":,\n") {
			t.Errorf("%q is taken", text)
		}
		for head, tail := range mountLines(text) {
			if len(head) < 5 || len(tail) < 3 {
				t.Errorf("mount: %q %q", head, tail)
			}
		}
		if w := lastWords(data); len(w) > 2000+len("…") || strings.Contains(w, "\n") {
			t.Errorf("last words: %q", w)
		}
	})
}
