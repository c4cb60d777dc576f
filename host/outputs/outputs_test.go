package outputs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hutch-run/hutch/sdk/safefile"
)

func dirs(t *testing.T) (src, dst string) {
	t.Helper()
	src, dst = filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "dst")
	for _, d := range []string{src, dst} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return src, dst
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

var noDetail = cmpopts.IgnoreFields(Skipped{}, "Detail")

func TestCollect(t *testing.T) {
	src, dst := dirs(t)
	put(t, filepath.Join(src, "a.json"), "{}", 0o644)
	put(t, filepath.Join(src, "sub", "deep", "b.json"), "[]", 0o777|os.ModeSetuid)
	put(t, filepath.Join(src, "sub", "c.txt"), "text", 0o400)
	put(t, filepath.Join(src, "hard"), "x", 0o600)
	put(t, filepath.Join(src, "esc\x1b[2J"), "x", 0o600)
	for _, err := range []error{
		os.Link(filepath.Join(src, "hard"), filepath.Join(src, "hard2")),
		os.Symlink("/etc/passwd", filepath.Join(src, "passwd.json")),
		os.Symlink("/etc", filepath.Join(src, "etc")),
		syscall.Mkfifo(filepath.Join(src, "fifo"), 0o600),
		os.WriteFile(filepath.Join(src, "big"), nil, 0o600),
		os.Truncate(filepath.Join(src, "big"), 1<<40),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res, err := Collect(t.Context(), src, dst, nil, Caps{})
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	want := &Result{
		Outputs: []Output{
			{"a.json", 2, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", "0644"},
			{"sub/c.txt", 4, "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1", "0600"},
			{"sub/deep/b.json", 2, "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945", "0755"},
		},
		Skipped: []Skipped{
			{Path: "big", Reason: safefile.ReasonTooBig}, {Path: "esc\x1b[2J", Reason: safefile.ReasonName}, {Path: "etc", Reason: safefile.ReasonSymlink},
			{Path: "fifo", Reason: safefile.ReasonSpecial}, {Path: "hard", Reason: safefile.ReasonHardlink}, {Path: "hard2", Reason: safefile.ReasonHardlink},
			{Path: "passwd.json", Reason: safefile.ReasonSymlink},
		},
	}
	if diff := cmp.Diff(want, res, noDetail); diff != "" {
		t.Error(diff)
	}
	for _, s := range res.Skipped {
		if s.Detail == "" || strings.ContainsAny(s.Detail, "\x1b\n") {
			t.Errorf("%+v", s)
		}
	}
	for _, o := range res.Outputs {
		fi, err := os.Lstat(filepath.Join(dst, o.Path))
		if err != nil || !fi.Mode().IsRegular() || fi.Size() != o.Size || fmt.Sprintf("%04o", fi.Mode()&(os.ModePerm|os.ModeSetuid)) != o.Mode {
			t.Errorf("%s: %v %v", o.Path, fi, err)
		}
	}
	left := 0
	_ = filepath.WalkDir(dst, func(_ string, d os.DirEntry, _ error) error {
		if !d.IsDir() {
			left++
		}
		return nil
	})
	if left != len(res.Outputs) {
		t.Errorf("%d files are in the destination", left)
	}
}

func TestCollectPatterns(t *testing.T) {
	for pattern, want := range map[string][]string{
		"*.json": {"a.json"}, "**/*.json": {"a.json", "d/b.json"}, "d/*": {"d/b.json", "d/c"}, "{a.json,d/c}": {"a.json", "d/c"}, "nothing": nil,
	} {
		src, dst := dirs(t)
		for _, f := range []string{"a.json", "d/b.json", "d/c"} {
			put(t, filepath.Join(src, f), "x", 0o644)
		}
		if err := os.Symlink("a.json", filepath.Join(src, "unasked")); err != nil {
			t.Fatal(err)
		}
		res, err := Collect(t.Context(), src, dst, []string{pattern}, Caps{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range res.Outputs {
			got = append(got, o.Path)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(res.Skipped) > 0 {
			t.Errorf("%s: %s %v", pattern, diff, res.Skipped)
		}
	}
	if _, err := Collect(t.Context(), t.TempDir(), t.TempDir(), []string{"[a"}, Caps{}); err == nil {
		t.Error("a malformed pattern was taken")
	}
}

func TestCollectCaps(t *testing.T) {
	for name, c := range map[string]struct {
		caps Caps
		want map[string]safefile.Reason // "" for collected
	}{
		"file":    {Caps{File: 5}, map[string]safefile.Reason{"a": "", "b": "too_big", "d/c": "", "d/e/f": ""}},
		"total":   {Caps{Total: 12}, map[string]safefile.Reason{"a": "", "b": "total", "d/c": "", "d/e/f": ""}},
		"count":   {Caps{Count: 2}, map[string]safefile.Reason{"a": "", "b": "", "d/c": "too_many", "d/e/f": "too_many"}},
		"depth":   {Caps{Depth: 2}, map[string]safefile.Reason{"a": "", "b": "", "d/c": "", "d/e": "too_deep"}},
		"entries": {Caps{Entries: 4}, map[string]safefile.Reason{"a": "", "b": "", "d": "too_many"}},
	} {
		t.Run(name, func(t *testing.T) {
			src, dst := dirs(t)
			put(t, filepath.Join(src, "a"), "12345", 0o644)
			put(t, filepath.Join(src, "b"), "1234567890", 0o644)
			put(t, filepath.Join(src, "d", "c"), "123", 0o644)
			put(t, filepath.Join(src, "d", "e", "f"), "1", 0o644)
			res, err := Collect(t.Context(), src, dst, nil, c.caps)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]safefile.Reason{}
			for _, o := range res.Outputs {
				got[o.Path] = ""
			}
			for _, s := range res.Skipped {
				got[s.Path] = s.Reason
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCollectListsOnlySoManySkipped(t *testing.T) {
	src, dst := dirs(t)
	for i := range maxSkipped + 5 {
		if err := os.Symlink("x", filepath.Join(src, fmt.Sprintf("l%05d", i))); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(src, "z"), "last", 0o644)
	res, err := Collect(t.Context(), src, dst, nil, Caps{})
	if err != nil || len(res.Skipped) != maxSkipped || res.More != 5 || len(res.Outputs) != 1 {
		t.Errorf("%d, %d more, %d outputs, %v", len(res.Skipped), res.More, len(res.Outputs), err)
	}
}

func TestCollectErrors(t *testing.T) {
	src, dst := dirs(t)
	put(t, filepath.Join(src, "a"), "x", 0o644)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if res, err := Collect(ctx, src, dst, nil, Caps{}); !errors.Is(err, why) || res == nil {
		t.Errorf("%v %v", res, err)
	}
	if _, err := Collect(t.Context(), filepath.Join(src, "none"), dst, nil, Caps{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	// The destination is the host's own; something in the way of a name there costs that one file.
	put(t, filepath.Join(dst, "a"), "old", 0o644)
	res, err := Collect(t.Context(), src, dst, nil, Caps{})
	if err != nil || len(res.Skipped) != 1 || res.Skipped[0].Reason != safefile.ReasonName {
		t.Errorf("%+v %v", res, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dst, "a")); string(b) != "old" {
		t.Error("a file in the destination was overwritten or removed")
	}
}
