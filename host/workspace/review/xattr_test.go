package review

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// attributes are those of a path of the project that are kept.
func (f *fixture) attributes(path string) map[string]string {
	f.t.Helper()
	file, err := os.Open(f.project + "/" + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	list, err := readXattrs(int(file.Fd()))
	if err != nil {
		f.t.Fatal(err)
	}
	got := map[string]string{}
	for _, x := range list {
		got[x.Name] = string(x.Value)
	}
	return got
}

// TestAttributesAreKept replaces files that have attributes and an access control list, and takes that back.
func TestAttributesAreKept(t *testing.T) {
	f := newFixture(t, "a=1", "gone=g", "dir/x=x")
	// version 2; owner rw, user 1 r, group r, mask r, other r
	acl := "\x02\x00\x00\x00" + "\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\x01\x00\x00\x00" + "\x04\x00\x04\x00\xff\xff\xff\xff" +
		"\x10\x00\x04\x00\xff\xff\xff\xff" + "\x20\x00\x04\x00\xff\xff\xff\xff"
	want := map[string]string{"user.note": "mine", "system.posix_acl_access": acl}
	for _, p := range []string{"a", "gone", "dir"} {
		for name, value := range want {
			if p == "dir" && name != "user.note" {
				continue
			}
			if err := unix.Setxattr(f.project+"/"+p, name, []byte(value), 0); noXattrs(err) {
				t.Skipf("the file system of %s has no %s", f.project, name)
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	before := pictureOf(f.project, true)
	f.rebase()
	f.write("a=2")
	f.remove("gone", "dir")
	f.seal()
	if _, err := f.apply(f.open(), Policy{}); err != nil {
		t.Fatal(err)
	}
	if got := flat(t, f.project); got != "a=2" {
		t.Fatalf("the project has %s", got)
	}
	if d := cmp.Diff(want, f.attributes("a")); d != "" {
		t.Errorf("after the apply (-want +got):\n%s", d)
	}
	if _, err := f.ledger.Undo(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"a", "gone"} {
		if d := cmp.Diff(want, f.attributes(p)); d != "" {
			t.Errorf("%s after the undo (-want +got):\n%s", p, d)
		}
	}
	if d := cmp.Diff(map[string]string{"user.note": "mine"}, f.attributes("dir")); d != "" {
		t.Errorf("dir after the undo (-want +got):\n%s", d)
	}
	if d := cmp.Diff(before, pictureOf(f.project, true)); d != "" {
		t.Errorf("after the undo (-before +after):\n%s", d)
	}
	f.noLitter()
}
