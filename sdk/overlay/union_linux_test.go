package overlay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/overlaytest"
)

func TestMain(m *testing.M) {
	overlaytest.Main()
	os.Exit(m.Run())
}

func openUnion(t testing.TB, lower, upper string, trusted bool) *Union {
	t.Helper()
	u, err := OpenUnion(lower, upper, UnionOptions{Trusted: trusted, At: overlaytest.At})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// unionView is overlaytest.View of a union, by Scan and the methods of Dir; every path is looked at by Lstat and Open
// too.
func unionView(t testing.TB, u *Union) []string {
	t.Helper()
	var mu sync.Mutex
	var out []string
	err := u.Scan(t.Context(), ".", ScanOptions{}, func(d *Dir, names []Name) error {
		if d.Err != nil {
			return d.Err
		}
		for _, n := range names {
			e, err := d.Lstat(n)
			if err != nil {
				return err
			}
			again, err := u.Lstat(e.Path)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(e, again); diff != "" {
				return fmt.Errorf("%s: Dir.Lstat and Union.Lstat differ:\n%s", e.Path, diff)
			}
			var content []byte
			if e.Mode.IsRegular() {
				if content, err = d.ReadFile(n, 1<<20, nil); err != nil {
					return err
				}
				f, _, err := u.Open(e.Path, -1)
				if err != nil {
					return err
				}
				b, err := io.ReadAll(f)
				f.Close()
				if err != nil || !bytes.Equal(b, content) || int64(len(b)) != e.Size {
					return fmt.Errorf("%s: Open gives %q, %w; ReadFile %q; the size is %d", e.Path, b, err, content, e.Size)
				}
			}
			mu.Lock()
			out = append(out, overlaytest.Line(e.Path, e.Mode, content, e.Target))
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// TestUnionIsAnOverlay does random operations on a real overlay. After each one the layers of the overlay, read as a
// union, show what the overlay shows, and their differences are those to the lower directory. Now and then what was
// written is frozen, and another overlay is laid over it.
func TestUnionIsAnOverlay(t *testing.T) {
	rounds, steps := 12, 120
	if testing.Short() {
		rounds = 3
	}
	for _, trusted := range []bool{false, true} {
		for seed := range rounds {
			t.Run(fmt.Sprintf("trusted=%t/%d", trusted, seed), func(t *testing.T) {
				differential(t, trusted, rand.New(rand.NewPCG(uint64(seed), 7)), steps)
			})
		}
	}
}

func differential(t *testing.T, trusted bool, r *rand.Rand, steps int) {
	p := newPairing(t, overlaytest.Lower(t), trusted)
	for i := range steps {
		p.do(overlaytest.Random(r))
		if i%30 == 29 {
			p.freeze()
		}
	}
	if p.well < steps/4 {
		t.Errorf("only %d of %d operations went well, which proves little", p.well, steps)
	}
	p.end()
}

// pairing is a real overlay, and its layers read as a union.
type pairing struct {
	t          *testing.T
	lower      string
	trusted    bool
	before     []string // of lower
	frozen     []string // layers, from the top
	m          *overlaytest.Mount
	beside     *Union
	step, well int
}

func newPairing(t *testing.T, lower string, trusted bool) *pairing {
	t.Helper()
	p := &pairing{t: t, lower: lower, trusted: trusted}
	p.start()
	var err error
	if p.before, err = overlaytest.View(lower); err != nil {
		t.Fatal(err)
	}
	return p
}

// start mounts an overlay over the frozen layers.
func (p *pairing) start() {
	p.t.Helper()
	p.m = overlaytest.Start(p.t, strings.Join(append(slices.Clone(p.frozen), p.lower), ":"), p.trusted)
	var err error
	p.beside, err = OpenUnion(p.lower, p.m.Upper, UnionOptions{Trusted: p.trusted, At: overlaytest.At, Frozen: p.frozen})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { p.beside.Close() })
}

// freeze goes on with another overlay, over a copy of what was written to this one.
func (p *pairing) freeze() {
	p.t.Helper()
	layers, use := p.t.TempDir(), p.t.TempDir()+"/use"
	if err := Freeze(p.t.Context(), p.m.Upper, layers, "id", use); err != nil {
		p.t.Fatal(err)
	}
	p.frozen = append([]string{FrozenAt(layers, "id")}, p.frozen...)
	p.start()
}

// do does one thing to the overlay and compares.
func (p *pairing) do(op overlaytest.Op) {
	p.t.Helper()
	p.step++
	a := p.m.Do(op)
	if a.Err == "" {
		p.well++
	}
	if diff := cmp.Diff(a.View, unionView(p.t, p.beside)); diff != "" {
		p.t.Fatalf("step %d, %s: overlay and its layers (-overlay +union):\n%s", p.step, op, diff)
	}
	o := Options{Trusted: p.trusted}
	for _, f := range p.frozen {
		o.Frozen = append(o.Frozen, root(p.t, f))
	}
	list, err := Changes(p.t.Context(), root(p.t, p.lower), root(p.t, p.m.Upper), o)
	if err != nil {
		p.t.Fatal(err)
	}
	got := []string{}
	for _, c := range list {
		got = append(got, map[Kind]string{Added: "+", Deleted: "-"}[c.Kind]+c.Path)
	}
	slices.Sort(got)
	if diff := cmp.Diff(changed(p.before, a.View), got); diff != "" {
		p.t.Fatalf("step %d, %s: changes of the overlay and of its layers (-overlay +layers):\n%s", p.step, op, diff)
	}
}

// viewed has the path of an overlaytest.Line.
var viewed = regexp.MustCompile(`(?s)^(.*?) (?:link .*|[-a-zA-Z]{10,}(?: \d+ [0-9a-f]{16})?)$`)

// changed compares two views: what is new has a "+" before its path, and what is gone a "-".
func changed(before, after []string) []string {
	was, is := map[string]string{}, map[string]string{}
	for lines, to := range map[*[]string]map[string]string{&before: was, &after: is} {
		for _, l := range *lines {
			to[viewed.FindStringSubmatch(l)[1]] = l
		}
	}
	out := []string{}
	for path, l := range is {
		switch {
		case was[path] == "":
			out = append(out, "+"+path)
		case was[path] != l:
			out = append(out, path)
		}
	}
	for path := range was {
		if is[path] == "" {
			out = append(out, "-"+path)
		}
	}
	slices.Sort(out)
	return out
}

// end looks at what is left in the lower directory.
func (p *pairing) end() {
	p.t.Helper()
	after, err := overlaytest.View(p.lower)
	if diff := cmp.Diff(p.before, after); diff != "" || err != nil {
		p.t.Errorf("the lower directory changed: %v\n%s", err, diff)
	}
}

// TestCopyOfAProject reads a copy that stands for the whole project as if an overlay had made it.
func TestCopyOfAProject(t *testing.T) {
	for _, trusted := range []bool{false, os.Geteuid() == 0} {
		lower, upper := overlaytest.Lower(t), t.TempDir()+"/upper"
		if err := CopyProject(t.Context(), lower, upper, Options{Trusted: trusted}); err != nil {
			t.Fatal(err)
		}
		before, err := overlaytest.View(lower)
		if err != nil {
			t.Fatal(err)
		}
		u := openUnion(t, lower, upper, trusted)
		if diff := cmp.Diff(before, unionView(t, u)); diff != "" {
			t.Errorf("the copy shows something else (-project +copy):\n%s", diff)
		}
		if got := show(changesOf(t, lower, upper, trusted)); len(got) > 0 {
			t.Errorf("an untouched copy has the changes %q", got)
		}
		if err := errors.Join(os.RemoveAll(upper+"/a"), os.WriteFile(upper+"/new", nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if _, err := u.Lstat("a"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what was removed from the copy is still seen: %v", err)
		}
		for _, c := range changesOf(t, lower, upper, trusted) {
			removed := c.Kind == Deleted && (c.Path == "a" || strings.HasPrefix(c.Path, "a/"))
			if !removed && (c.Kind != Added || c.Path != "new") {
				t.Errorf("the change %+v was not made", c)
			}
		}
	}
}

// TestUnionNasty does what makes marks of every kind, and takes them away again.
func TestUnionNasty(t *testing.T) {
	op := func(do, p string) overlaytest.Op {
		return overlaytest.Op{Do: do, Path: p, Data: do + " " + p + "\n", Mode: 0o755}
	}
	to := func(do, p, to string) overlaytest.Op { return overlaytest.Op{Do: do, Path: p, To: to, Mode: 0o755} }
	write, mkdir, remove := func(p string) overlaytest.Op { return op("write", p) }, func(p string) overlaytest.Op { return op("mkdir", p) }, func(p string) overlaytest.Op { return op("remove", p) }
	for name, ops := range map[string][]overlaytest.Op{
		"a directory that is removed and made again is empty": {remove("a"), mkdir("a"), write("a/new"), remove("a/new"), remove("a"), mkdir("a/a")},
		"the same but deep":                                         {remove("a/a"), mkdir("a/a"), write("a/a/b"), remove("a"), mkdir("a/a"), write("a/a/c")},
		"a file becomes a directory and a file again":               {remove("c"), mkdir("c"), write("c/x"), remove("c"), write("c"), remove("c")},
		"a directory becomes a file and a directory again":          {remove("d"), write("d"), remove("d"), mkdir("d"), write("d/a")},
		"a directory becomes a link to another":                     {remove("d"), to("symlink", "d", "a"), write("d/new"), remove("d/b"), remove("d"), mkdir("d")},
		"a link to a directory becomes a directory":                 {remove("b/a"), mkdir("b/a"), write("b/a/x")},
		"a write through a link to a file of the lower layer":       {to("symlink", "l", "a/b"), write("l"), remove("l"), write("l")},
		"a write through a link of the lower layer":                 {write("b/a/a/a"), write("d/c/new"), remove("d/c/a"), remove("d/c")},
		"a link that leads nowhere makes a file":                    {to("symlink", "l", "new"), write("l"), remove("l"), to("symlink", "l", "no/such"), write("l"), mkdir("l"), mkdir("l/x")},
		"a link that leads to itself":                               {to("symlink", "l", "l"), write("l"), mkdir("l/x"), op("chmod", "l"), remove("l")},
		"a link that leads out is not followed":                     {write("b/d/x"), remove("b/d/x"), op("chmod", "b/d"), remove("b/d")},
		"the workspace by its absolute path":                        {to("symlink", "w", overlaytest.At), write("w/new"), remove("w/a/b"), remove("w")},
		"a removed name comes back under another type":              {remove("c"), to("symlink", "c", "a"), write("c/x"), remove("c"), write("c")},
		"a renamed file hides and is hidden":                        {to("rename", "c", "a/b"), write("c"), to("rename", "a/b", "c"), remove("c")},
		"a new directory is renamed onto a removed one":             {mkdir("n"), write("n/x"), remove("a"), to("rename", "n", "a"), write("a/a")},
		"modes of what was never written":                           {op("chmod", "a"), op("chmod", "a/a/a"), {Do: "chmod", Path: "b/c", Mode: 0o700}, {Do: "chmod", Path: "b/c", Mode: 0o755}, remove("b/c/a")},
		"modes with more than permissions":                          {{Do: "write", Path: "c", Data: "x", Mode: 0o755 | fs.ModeSetuid}, {Do: "chmod", Path: "d", Mode: 0o777 | fs.ModeSticky}, {Do: "chmod", Path: "a", Mode: 0o755 | fs.ModeSetgid}},
		"names that look like marks":                                {write(".wh.c"), write(".wh..wh..opq"), mkdir("a/.wh.a"), remove(".wh.c"), write("a/.wh..opq")},
		"names of odd bytes":                                        {write("\xff\xfe"), write(" "), write("-rf"), write("a\nb"), write("\\"), mkdir("*"), remove("\xff\xfe"), remove("-rf")},
		"below a file and below nothing":                            {write("c/x"), mkdir("c/x"), remove("c/x"), remove("nothing"), remove("no/thing"), op("chmod", "nothing"), op("append", "nothing")},
		"everything goes and comes back":                            {remove("a"), remove("b"), remove("c"), remove("d"), mkdir("a/a"), write("b/c/d"), write("c"), mkdir("d")},
		"long names and deep directories":                           {write(strings.Repeat("n", 255)), write(strings.Repeat("n", 256)), mkdir(strings.TrimSuffix(strings.Repeat("deep/", 60), "/")), remove(strings.TrimSuffix(strings.Repeat("deep/", 30), "/"))},
		"an empty file is not a whiteout nor is an empty directory": {{Do: "write", Path: "c", Mode: 0o755}, {Do: "write", Path: "e", Mode: 0o755}, mkdir("f"), remove("e"), remove("f")},
	} {
		t.Run(name, func(t *testing.T) {
			for _, trusted := range []bool{false, true} {
				if trusted && os.Geteuid() != 0 {
					continue
				}
				p := newPairing(t, overlaytest.Lower(t), trusted)
				for _, o := range ops {
					p.do(o)
				}
				p.end()
			}
		})
	}
}

// FuzzUnion does what the input says to an overlay and reads its layers as a union.
func FuzzUnion(f *testing.F) {
	f.Add([]byte("a directory and a file and a link"))
	f.Add([]byte("\x00\x10\x20\x30\x40\x50\x60\x70\x80\x90\xa0\xb0\xc0\xd0\xe0\xf0\xff\x08\x18\x28\x38\x48\x58\x68\x78\x88\x98\xa8"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 300 {
			t.Skip()
		}
		p := newPairing(t, overlaytest.Lower(t), false)
		s := &source{b, rand.NewPCG(1, 2)}
		for r := rand.New(s); len(s.left) > 0; {
			p.do(overlaytest.Random(r))
		}
		p.end()
	})
}

// source gives the bytes of a fuzzer as random numbers: as their upper bits, which is what small ranges look at. The
// lower ones are random, because what rejects a number asks for another one until it is content.
type source struct {
	left  []byte
	lower *rand.PCG
}

// Uint64 implements rand.Source.
func (s *source) Uint64() uint64 {
	n := s.lower.Uint64()
	if len(s.left) > 0 {
		n = uint64(s.left[0])<<56 | n>>8
		s.left = s.left[1:]
	}
	return n
}
