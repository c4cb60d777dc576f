package review

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"golang.org/x/sys/unix"
)

// TestConflicts changes the project after the sandbox was made. want maps paths to a part of the conflict's text, or to
// "clean".
func TestConflicts(t *testing.T) {
	for _, c := range []struct {
		name    string
		project []string
		sandbox func(f *fixture)
		host    func(f *fixture)
		want    map[string]string
	}{
		{
			name: "both changed a file", project: []string{"a=1", "b=1"},
			sandbox: func(f *fixture) { f.write("a=sandbox", "b=sandbox") },
			host:    func(f *fixture) { plant(f.t, f.project, "a=host!!") },
			want:    map[string]string{"a": "changed in the project since the sandbox was made, and in the sandbox as well", "b": "clean"},
		},
		{
			name: "a host's change of the same size and with its time put back", project: []string{"a=1"},
			sandbox: func(f *fixture) { f.write("a=2") },
			host: func(f *fixture) {
				fi, _ := os.Stat(f.project + "/a")
				plant(f.t, f.project, "a=3")
				os.Chtimes(f.project+"/a", fi.ModTime(), fi.ModTime())
			},
			want: map[string]string{"a": "and in the sandbox as well"},
		},
		{
			name: "both made the same change", project: []string{"a=1", "gone=g"},
			sandbox: func(f *fixture) { f.write("a=same", "new=same"); f.remove("gone") },
			host:    func(f *fixture) { plant(f.t, f.project, "a=same", "new=same"); os.Remove(f.project + "/gone") },
			want:    map[string]string{},
		},
		{
			name: "the sandbox deleted what the host changed", project: []string{"a=1"},
			sandbox: func(f *fixture) { f.remove("a") },
			host:    func(f *fixture) { plant(f.t, f.project, "a=host") },
			want:    map[string]string{"a": "and deleted in the sandbox"},
		},
		{
			name: "the host deleted what the sandbox changed", project: []string{"a=1"},
			sandbox: func(f *fixture) { f.write("a=sandbox") },
			host:    func(f *fixture) { os.Remove(f.project + "/a") },
			want:    map[string]string{"a": "deleted in the project since the sandbox was made, and changed in the sandbox"},
		},
		{
			name: "both made a file of one name", project: []string{"x=1"},
			sandbox: func(f *fixture) { f.write("new=sandbox") },
			host:    func(f *fixture) { plant(f.t, f.project, "new=host") },
			want:    map[string]string{"new": "made in the project since the sandbox was made, and in the sandbox as well"},
		},
		{
			name: "the host made a file in a directory that the sandbox deleted", project: []string{"dir/a=1"},
			sandbox: func(f *fixture) { f.remove("dir") },
			host:    func(f *fixture) { plant(f.t, f.project, "dir/new=host") },
			want:    map[string]string{"dir": "clean", "dir/a": "clean", "dir/new": "its directory is deleted in the sandbox"},
		},
		{
			name: "the host deleted a directory that the sandbox only passed through", project: []string{"dir/sub/a=1", "dir/b=1"},
			sandbox: func(f *fixture) { f.write("dir/sub/new=n") },
			host:    func(f *fixture) { os.RemoveAll(f.project + "/dir") },
			want:    map[string]string{"dir": "clean", "dir/sub": "clean", "dir/sub/new": "clean"},
		},
		{
			name: "only the host changed what the sandbox copied up", project: []string{"a=1", "link->a"},
			sandbox: func(f *fixture) {
				// A program opened it for writing and wrote nothing.
				if err := copyNode(f.project+"/a", f.upper+"/a"); err != nil {
					f.t.Fatal(err)
				}
			},
			host: func(f *fixture) { plant(f.t, f.project, "a=host") },
			want: map[string]string{},
		},
		{
			name: "both changed a mode", project: []string{"a=1"},
			sandbox: func(f *fixture) { os.Chmod(f.merged+"/a", 0o600) },
			host:    func(f *fixture) { os.Chmod(f.project+"/a", 0o640) },
			want:    map[string]string{"a": "and in the sandbox as well"},
		},
		{
			name: "the host made a link of the directory in which the sandbox made a file", project: []string{"dir/a=1", "other/x=1"},
			sandbox: func(f *fixture) { f.write("dir/new=n") },
			host:    func(f *fixture) { os.RemoveAll(f.project + "/dir"); os.Symlink("other", f.project+"/dir") },
			want:    map[string]string{"dir/new": "clean"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.project...)
			f.tick()
			c.sandbox(f)
			f.seal()
			c.host(f)
			before := pictureOf(f.project, true)
			r := f.open()
			got := map[string]string{}
			clean := true
			for _, x := range r.Changes {
				got[x.Path] = "clean"
				if x.Conflict != "" {
					got[x.Path], clean = x.Conflict, false
				}
				if want := c.want[x.Path]; want != "" && want != "clean" && strings.Contains(x.Conflict, want) {
					got[x.Path] = want
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			_, err := f.apply(r, Policy{})
			var blocked *BlockedError
			if !clean && !errors.As(err, &blocked) {
				t.Errorf("the apply gives %v, want a BlockedError", err)
			}
			if err != nil && pictureOf(f.project, true) != before {
				t.Error("an apply that was refused changed the project")
			}
		})
	}
}

// tick waits until the clock of the file system has gone on since the base was taken, and sees to it that what the
// sandbox writes has its own time. File systems count in ticks of some milliseconds.
func (f *fixture) tick() {
	f.t.Helper()
	newest := int64(0)
	for _, e := range f.base.Entries {
		newest = max(newest, e.Ctime)
	}
	probe := filepath.Join(filepath.Dir(f.project), "probe")
	for range 100_000 {
		if err := os.WriteFile(probe, nil, 0o644); err != nil {
			f.t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(probe, &st); err != nil {
			f.t.Fatal(err)
		}
		if st.Ctim.Nano() > newest && st.Mtim.Nano() > newest {
			return
		}
		os.Remove(probe)
	}
	f.t.Fatal("the clock of the file system stands still")
}

// TestPartial leaves out what is in conflict, and all that depends on it.
func TestPartial(t *testing.T) {
	f := newFixture(t, "a=1", "b=1", "dir/a=1", "dir/b=1")
	f.write("a=sandbox", "b=sandbox", "tool*=t")
	f.remove("dir")
	f.seal()
	plant(t, f.project, "a=host!!", "dir/b=host!!")
	r := f.open()
	p, err := r.Plan(t.Context(), r.All(), Policy{Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, c := range p.Left {
		left = append(left, c.Path)
	}
	if d := cmp.Diff([]string{"a", "dir/b", "tool"}, left); d != "" {
		t.Errorf("left out (-want +got):\n%s", d)
	}
	if _, err := f.ledger.Apply(t.Context(), r, p); err != nil {
		t.Fatal(err)
	}
	want := "a=host!! b=sandbox dir/b=host!!"
	if got := flat(t, f.project); got != want {
		t.Errorf("the project has %s, want %s", got, want)
	}
}

// TestChosenPaths applies what is below some paths, with the directories above that are new.
func TestChosenPaths(t *testing.T) {
	for _, c := range []struct{ paths, want string }{
		{"new/deep/file", "a=1 dir/x=1 new/deep/file=n"},
		{"new/deep", "a=1 dir/x=1 new/deep/file=n new/deep/other=n"},
		{"a", "a=2 dir/x=1"},
		{"dir", "a=1"},
		{"dir/x", "a=1"},
		{"./new/./deep/file a", "a=2 dir/x=1 new/deep/file=n"},
		{"/workspace/a", "a=2 dir/x=1"},
		{".", "a=2 new/deep/file=n new/deep/other=n new/z=n"},
		{"ne", ""},
	} {
		t.Run(c.paths, func(t *testing.T) {
			f := newFixture(t, "a=1", "dir/x=1")
			f.write("a=2", "new/deep/file=n", "new/deep/other=n", "new/z=n")
			f.remove("dir")
			f.seal()
			_, err := f.apply(f.open(strings.Fields(c.paths)...), Policy{})
			if c.want == "" {
				if !errors.Is(err, errNothing) {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := flat(t, f.project); got != c.want {
				t.Errorf("the project has %s, want %s", got, c.want)
			}
		})
	}
	f := newFixture(t, "a=1")
	f.write("a=2")
	f.seal()
	for _, p := range []string{"..", "../x", "/etc", "a/../../x"} {
		if _, err := Open(t.Context(), f.subject(), Options{Paths: []string{p}}); err == nil || !strings.Contains(err.Error(), "outside the project") {
			t.Errorf("the path %q gives %v", p, err)
		}
	}
}

// flat lists the files of a tree with their content.
func flat(t *testing.T, dir string) string {
	var out []string
	filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().IsRegular() {
			b, _ := os.ReadFile(p)
			rel, _ := filepath.Rel(dir, p)
			out = append(out, rel+"="+string(b))
		}
		return nil
	})
	return strings.Join(out, " ")
}

func TestWithoutBase(t *testing.T) {
	f := newFixture(t, "a=1")
	f.write("a=2", "new=n")
	f.seal()
	s := f.subject()
	s.Base = nil
	r, err := Open(t.Context(), s, Options{Keep: f.ledger.Dir()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := map[string]bool{}
	for _, c := range r.Changes {
		got[c.Path] = c.Conflict == ""
	}
	if d := cmp.Diff(map[string]bool{"a": false, "new": true}, got); d != "" {
		t.Errorf("clean without a base (-want +got):\n%s", d)
	}
	s.Base = &Base{} // seen, but not all of it
	r2, err := Open(t.Context(), s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r2.Close()
	if !strings.Contains(r2.Changes[0].Conflict, "was not seen") {
		t.Errorf("the conflict is %q", r2.Changes[0].Conflict)
	}
}

func TestUndoRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		host func(dir string)
		want string
	}{
		"a changed file":                 {func(d string) { os.WriteFile(d+"/a", []byte("mine"), 0o644) }, "a: its content is another one"},
		"a changed mode":                 {func(d string) { os.Chmod(d+"/a", 0o600) }, "a: its mode is 0600"},
		"a file deleted":                 {func(d string) { os.Remove(d + "/new/file") }, "new/file: nothing stands there"},
		"something in its place":         {func(d string) { os.WriteFile(d+"/gone", nil, 0o644) }, "gone: a file stands there"},
		"a file in a directory it made":  {func(d string) { os.WriteFile(d+"/new/mine", nil, 0o644) }, "new: mine was made in it"},
		"the content of a file chmodded": {func(d string) { os.WriteFile(d+"/mode", []byte("mine"), 0o600) }, "mode: its content is another one"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "a=1", "gone=g", "mode=m")
			f.write("a=2", "new/file=n")
			f.remove("gone")
			os.Chmod(f.merged+"/mode", 0o600)
			f.seal()
			if _, err := f.apply(f.open(), Policy{}); err != nil {
				t.Fatal(err)
			}
			c.host(f.project)
			before := pictureOf(f.project, true)
			_, err := f.ledger.Undo(t.Context(), "box")
			var changed *UndoError
			if !errors.As(err, &changed) {
				t.Fatalf("the error is %v, want an UndoError", err)
			}
			if d := cmp.Diff([]string{c.want}, changed.Changed); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if pictureOf(f.project, true) != before {
				t.Error("the refused undo changed the project")
			}
		})
	}
}

func TestUndoGoesBackStepByStep(t *testing.T) {
	f := newFixture(t, "a=0")
	for _, v := range []string{"1", "2"} {
		os.RemoveAll(f.upper)
		os.Mkdir(f.upper, 0o755)
		f.write("a=" + v)
		f.seal()
		if _, err := f.apply(f.open(), Policy{}); err != nil {
			t.Fatal(err)
		}
		f.rebase()
	}
	for _, want := range []string{"a=1", "a=0"} {
		if _, err := f.ledger.Undo(t.Context(), "box"); err != nil {
			t.Fatal(err)
		}
		if got := flat(t, f.project); got != want {
			t.Errorf("the project has %s, want %s", got, want)
		}
	}
	if _, err := f.ledger.Undo(t.Context(), "box"); !errors.Is(err, ErrNoUndo) {
		t.Errorf("a third undo gives %v", err)
	}
	if _, err := f.ledger.Undo(t.Context(), "another"); !errors.Is(err, ErrNoUndo) {
		t.Errorf("the undo of another sandbox gives %v", err)
	}
}

func TestPrune(t *testing.T) {
	f := newFixture(t, "a=0")
	f.write("a=1")
	f.seal()
	a, err := f.apply(f.open(), Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if a.Until.Before(time.Now().Add(KeepFor - time.Hour)) {
		t.Errorf("undo ends at %v", a.Until)
	}
	if err := f.ledger.Prune(t.Context(), time.Now().Add(KeepFor-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if list, _ := f.ledger.applied(); len(list) != 1 {
		t.Errorf("%d applies are kept, want 1", len(list))
	}
	if err := f.ledger.Prune(t.Context(), time.Now().Add(KeepFor+time.Hour)); err != nil {
		t.Fatal(err)
	}
	if list, _ := f.ledger.applied(); len(list) != 0 {
		t.Errorf("%d applies are kept after their time", len(list))
	}
}
