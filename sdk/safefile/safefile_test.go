package safefile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hostile makes a tree with one of everything.
func hostile(t *testing.T) (dir string, root *os.Root) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sf") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"), "secret")
	write(t, filepath.Join(dir, "file"), "hello")
	write(t, filepath.Join(dir, "empty"), "")
	write(t, filepath.Join(dir, "-rf"), "dash")
	write(t, filepath.Join(dir, "new\nline"), "nl")
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	write(t, filepath.Join(dir, "d", "inner"), "inner")
	must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "abs-link")))
	must(t, os.Symlink("file", filepath.Join(dir, "link")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	must(t, os.Symlink(outside, filepath.Join(dir, "dir-out")))
	must(t, os.Symlink("d", filepath.Join(dir, "dir-in")))
	write(t, filepath.Join(dir, "hard1"), "hard")
	must(t, os.Link(filepath.Join(dir, "hard1"), filepath.Join(dir, "hard2")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	big, err := os.Create(filepath.Join(dir, "big"))
	must(t, err)
	must(t, big.Truncate(1<<40))
	must(t, big.Close())
	root, err = os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { root.Close() })
	return dir, root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o640))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadFile has PATH-01, -02, -05 and -06 of the catalogue, and what else a name can lead to.
func TestReadFile(t *testing.T) {
	_, root := hostile(t)
	for name, want := range map[string]any{
		"file": "hello", "empty": "", "-rf": "dash", "new\nline": "nl", "d/inner": "inner",
		"link": ReasonSymlink, "abs-link": ReasonSymlink, "dangling": ReasonSymlink, "loop": ReasonSymlink,
		"dir-out/secret": ReasonSymlink, "dir-in/inner": ReasonSymlink, "dir-in": ReasonSymlink,
		"hard1": ReasonHardlink, "hard2": ReasonHardlink, "fifo": ReasonSpecial, "socket": ReasonSpecial,
		"big": ReasonTooBig, "d": ReasonDir,
		"missing": ReasonMissing, "file/x": ReasonMissing, "missing/x": ReasonMissing, "fifo/x": ReasonMissing,
		"": ReasonName, ".": ReasonDir, "..": ReasonName, "../../etc/passwd": ReasonName, "/etc/passwd": ReasonName,
		"d/../file": ReasonName, "d/": ReasonName, "d//inner": ReasonName, "./file": ReasonName, "a\x00b": ReasonName,
		strings.Repeat("x", 5000): ReasonName, strings.Repeat("x", 300): ReasonName, "/": ReasonName,
	} {
		b, err := ReadFile(root, name, 1<<20)
		if text, ok := want.(string); ok {
			if err != nil || string(b) != text {
				t.Errorf("%q: %q, %v", name, b, err)
			}
			continue
		}
		var refused *Error
		if !errors.As(err, &refused) || refused.Reason != want || refused.Path != name || refused.Detail == "" {
			t.Errorf("%.40q: %v, want %s", name, err, want)
			continue
		}
		if i := strings.IndexFunc(err.Error(), func(r rune) bool { return r < ' ' }); i >= 0 || len(err.Error()) > 1000 {
			t.Errorf("%.40q: an error that must not be printed: %q", name, err)
		}
	}
	if b, err := ReadFile(root, "file", 5); err != nil || len(b) != 5 {
		t.Errorf("at the cap: %v", err)
	}
	if _, err := ReadFile(root, "file", 4); err == nil {
		t.Error("over the cap")
	}
	if _, err := ReadFile(root, "file", -1); err == nil {
		t.Error("without a cap")
	}
}

func TestDeviceIsRefused(t *testing.T) {
	root, err := os.OpenRoot("/dev")
	must(t, err)
	defer root.Close()
	var refused *Error
	if _, _, err := Open(root, "zero", -1); !errors.As(err, &refused) || refused.Reason != ReasonSpecial {
		t.Errorf("%v", err)
	}
}

// TestCopySparse copies a giant that is all hole but for two pieces, and reads none of the hole.
func TestCopySparse(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	const size = 96 << 20
	src, err := os.Create(filepath.Join(dir, "src"))
	must(t, err)
	for _, at := range []int64{1 << 20, 64 << 20} {
		_, err := src.WriteAt([]byte("data"), at)
		must(t, err)
	}
	must(t, src.Truncate(size))
	must(t, src.Close())
	want := sha256.New()
	whole, err := os.Open(filepath.Join(dir, "src"))
	must(t, err)
	defer whole.Close()
	_, err = io.Copy(want, whole)
	must(t, err)
	sum := hex.EncodeToString(want.Sum(nil))

	dst, err := os.Create(filepath.Join(dir, "dst"))
	must(t, err)
	defer dst.Close()
	got, err := Copy(t.Context(), dst, root, "src", size)
	must(t, err)
	if got.Size != size || got.SHA256 != sum {
		t.Errorf("%+v, want %s", got, sum)
	}
	fi, err := dst.Stat()
	must(t, err)
	if blocks := fi.Sys().(*syscall.Stat_t).Blocks * 512; fi.Size() != size || blocks > 4<<20 {
		t.Errorf("%d bytes that take %d", fi.Size(), blocks)
	}
	_, err = dst.Seek(0, io.SeekStart)
	must(t, err)
	again := sha256.New()
	_, err = io.Copy(again, dst)
	must(t, err)
	if hex.EncodeToString(again.Sum(nil)) != sum {
		t.Error("the copy differs")
	}

	// Where there can be no holes the zeros are written.
	pipe := sha256.New()
	if got, err = Copy(t.Context(), pipe, root, "src", size); err != nil || got.SHA256 != hex.EncodeToString(pipe.Sum(nil)) || got.SHA256 != sum {
		t.Errorf("%+v %v", got, err)
	}
	appended, err := os.OpenFile(filepath.Join(dir, "app"), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	defer appended.Close()
	_, err = appended.WriteString("head")
	must(t, err)
	if _, err := Copy(t.Context(), appended, root, "src", size); err != nil {
		t.Fatal(err)
	}
	if fi, _ := appended.Stat(); fi.Size() != size+4 {
		t.Errorf("appended: %d bytes", fi.Size())
	}
}

func TestCopyErrors(t *testing.T) {
	_, root := hostile(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Copy(ctx, io.Discard, root, "big", -1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	full := errors.New("full")
	var refused *Error
	if _, err := Copy(t.Context(), failing{full}, root, "file", -1); !errors.Is(err, full) || errors.As(err, &refused) {
		t.Errorf("the destination is to blame: %v", err)
	}
	if _, err := Copy(t.Context(), io.Discard, root, "fifo", -1); !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// changing changes its source when it is first written to.
type changing struct {
	bytes.Buffer
	change func()
}

func (c *changing) Write(p []byte) (int, error) {
	if c.change != nil {
		c.change()
		c.change = nil
	}
	return c.Buffer.Write(p)
}

func TestCopyOfAFileThatChanges(t *testing.T) {
	for name, size := range map[string]int64{"shorter": 300_000, "longer": 2 << 20} {
		dir, root := hostile(t)
		path := filepath.Join(dir, "moving")
		write(t, path, strings.Repeat("x", 1<<20))
		dst := &changing{change: func() { must(t, os.Truncate(path, size)) }}
		var refused *Error
		if _, err := Copy(t.Context(), dst, root, "moving", 1<<20); !errors.As(err, &refused) || refused.Reason != ReasonChanged {
			t.Errorf("%s: %v", name, err)
		}
		if dst.Len() > 1<<20 {
			t.Errorf("%s: %d bytes got through", name, dst.Len())
		}
	}
}

func TestWalk(t *testing.T) {
	dir, root := hostile(t)
	must(t, os.MkdirAll(filepath.Join(dir, "d", "e", "f"), 0o755))
	write(t, filepath.Join(dir, "d", "e", "f", "deep"), "")
	walk := func(at string, caps Caps) (got []string, err error) {
		err = Walk(t.Context(), root, at, caps, func(e Entry) error {
			line := e.Path
			if e.Skip != "" {
				line += " " + string(e.Skip)
			}
			got = append(got, line)
			return nil
		})
		return got, err
	}
	got, err := walk(".", Caps{})
	want := []string{"-rf", "abs-link symlink", "big", "d", "d/e", "d/e/f", "d/e/f/deep", "d/inner", "dangling symlink", "dir-in symlink",
		"dir-out symlink", "empty", "fifo special", "file", "hard1 hard_link", "hard2 hard_link", "link symlink", "loop symlink", "new\nline", "socket special"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	got, err = walk("d", Caps{Depth: 3})
	if diff := cmp.Diff([]string{"d/e", "d/e/f too_deep", "d/inner"}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	var refused *Error
	if _, err = walk(".", Caps{Entries: 10}); !errors.As(err, &refused) || refused.Reason != ReasonTooMany {
		t.Errorf("%v", err)
	}
	for at, reason := range map[string]Reason{"dir-in": ReasonSymlink, "dir-out": ReasonSymlink, "file": ReasonMissing, "..": ReasonName, "none": ReasonMissing} {
		if _, err := walk(at, Caps{}); !errors.As(err, &refused) || refused.Reason != reason {
			t.Errorf("%s: %v", at, err)
		}
	}
	stop := errors.New("stop")
	if err := Walk(t.Context(), root, ".", Caps{}, func(Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	n := 0
	must(t, Walk(t.Context(), root, "d", Caps{}, func(e Entry) error {
		n++
		if e.Path == "d/e" {
			return filepath.SkipDir
		}
		return nil
	}))
	if n != 2 {
		t.Errorf("SkipDir: %d entries", n)
	}
}

// TestWalkOfAHugeDirectory: the cap holds memory and time, however many entries there are.
func TestWalkOfAHugeDirectory(t *testing.T) {
	dir := t.TempDir()
	for i := range 20_000 {
		f, err := os.OpenFile(filepath.Join(dir, strings.Repeat("n", 100)+string(rune('a'+i%26))+hex.EncodeToString([]byte{byte(i >> 8), byte(i)})), os.O_CREATE|os.O_WRONLY, 0o600)
		must(t, err)
		f.Close()
	}
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	n := 0
	var refused *Error
	if err := Walk(t.Context(), root, ".", Caps{Entries: 1000}, func(Entry) error { n++; return nil }); !errors.As(err, &refused) || n != 0 {
		t.Errorf("%d entries, %v", n, err)
	}
}

// TestRaces swaps a file and its directory for links, FIFOs and others while they are read. Nothing of the outside may
// ever be read, and nothing may hang.
func TestRaces(t *testing.T) {
	dir, root := hostile(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "f"), "SECRET")
	work := filepath.Join(dir, "work")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		file := filepath.Join(work, "f")
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			switch i % 6 {
			case 0:
				_ = os.Remove(work)
				_ = os.Mkdir(work, 0o755)
				_ = os.WriteFile(file, []byte("inside"), 0o600)
			case 1:
				_ = os.Remove(file)
				_ = os.Symlink(filepath.Join(outside, "f"), file)
			case 2:
				_ = os.Remove(file)
				_ = syscall.Mkfifo(file, 0o600)
			case 3:
				_ = os.Remove(file)
				_ = os.Symlink("../file", file)
			case 4:
				_ = os.RemoveAll(work)
				_ = os.Symlink(outside, work)
			case 5:
				_ = os.Remove(work)
				_ = os.Symlink("d", work)
			}
			runtime.Gosched()
		}
	})
	wanted, most := int64(1000), 1_000_000
	if testing.Short() {
		wanted = 100
	}
	var good int64
	rounds := 0
	for i := range most {
		rounds = i
		if good >= wanted && i >= 1000 {
			break
		}
		b, err := ReadFile(root, "work/f", 100)
		var refused *Error
		switch {
		case err == nil && (string(b) == "inside" || len(b) == 0):
			good++
		case err == nil:
			t.Fatalf("round %d: %q was read", i, b)
		case !errors.As(err, &refused):
			t.Fatalf("round %d: %v", i, err)
		}
		if i%10 == 0 {
			err := Walk(t.Context(), root, ".", Caps{}, func(e Entry) error {
				if strings.HasPrefix(e.Path, "work/") && e.Skip == "" {
					var b bytes.Buffer
					if _, err := Copy(t.Context(), &b, root, e.Path, 100); err == nil && b.Len() > 0 && b.String() != "inside" {
						t.Fatalf("round %d: %q was copied", i, b.String())
					}
				}
				return nil
			})
			if err != nil && !errors.As(err, &refused) {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
	if good < wanted {
		t.Errorf("the file was read %d times in %d rounds: not enough was raced", good, rounds)
	}
}

func FuzzName(f *testing.F) {
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("SECRET"), 0o600); err != nil {
		f.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "root"), 0o700); err != nil {
		f.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "root"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("../secret")
	f.Add("a/../../secret")
	f.Fuzz(func(t *testing.T, name string) {
		if b, err := ReadFile(root, name, 100); err == nil {
			t.Errorf("%q gave %q of an empty root", name, b)
		}
	})
}

// TestOpenRoot opens directories, through links that stay inside, and nothing else.
func TestOpenRoot(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, err := range []error{root.MkdirAll("a/b", 0o755), root.Symlink("a", "link"), root.Symlink("/", "out"), root.WriteFile("file", nil, 0o644),
		syscall.Mkfifo(filepath.Join(root.Name(), "fifo"), 0o644), root.Symlink("fifo", "tofifo")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "a/b", "link", "link/b", "."} {
		dir, err := OpenRoot(root, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, err1 := root.Stat(name)
		got, err2 := dir.Stat(".")
		if err1 != nil || err2 != nil || !os.SameFile(want, got) {
			t.Errorf("%s is another directory: %v %v", name, err1, err2)
		}
		dir.Close()
	}
	for _, name := range []string{"", "file", "fifo", "tofifo", "out", "../x", "none"} {
		dir, err := OpenRoot(root, name)
		if err == nil {
			dir.Close()
			t.Errorf("%q was opened", name)
		} else if strings.Contains(err.Error(), name+"/.:") {
			t.Errorf("the error names what nobody asked for: %v", err)
		}
	}
}
