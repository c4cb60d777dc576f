package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/sdk"
)

// whole is a directory as the machine packs it, with all of its files.
func whole(t *testing.T, s *sandbox, p string) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := s.fetch(t.Context(), p, nil, func(r io.Reader) error { return relay(t.Context(), r, &out) }); err != nil {
		t.Fatalf("fetch the whole of %s: %v", p, err)
	}
	return out.Bytes()
}

// assembled is a directory as it is put together.
func assembled(t *testing.T, s *sandbox, p string) []byte {
	t.Helper()
	rel, ok := s.sentTo(p)
	if !ok {
		t.Fatalf("nothing was sent to %s", p)
	}
	var out bytes.Buffer
	if done, err := s.assemble(t.Context(), rel, &out); !done || err != nil {
		t.Fatalf("assemble %s: %v, %v", p, done, err)
	}
	return out.Bytes()
}

// sent counts the bytes that machines have sent so far.
func sent(s *e2btest.Server) (n int64) {
	for _, r := range s.Requests() {
		if r.Sandbox != "" {
			n += r.Sent
		}
	}
	return n
}

// theSandbox is the backend's own half of one.
func (h *host) theSandbox(id string) *sandbox {
	s, err := h.backend.sandboxes.Once(h.t.Context(), id, func() (*sandbox, error) { return nil, errors.ErrUnsupported })
	if err != nil {
		h.t.Fatal(err)
	}
	return s.(*sandbox)
}

// noise is text that no compression makes small.
func noise(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// TestOnlyWhatChangedComesBack: of ten megabytes that were sent and one small change some kilobytes come back, the rest
// is taken from here, and what comes of it is what the machine would have packed.
func TestOnlyWhatChangedComesBack(t *testing.T) {
	server := local(t)
	h := newHost(t)
	r := rand.New(rand.NewPCG(1, 2))
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf("d%d/f%02d", i%7, i)] = noise(r, 100_000)
	}
	dir := project(t, files)
	sb := h.box(request(t, dir))
	s := h.theSandbox(sb.ID())
	get := func() ([]byte, int64) {
		t.Helper()
		before := sent(server)
		var out bytes.Buffer
		if err := sb.Get(t.Context(), "/workspace", sdk.FormatTar, &out); err != nil {
			t.Fatal(err)
		}
		return out.Bytes(), sent(server) - before
	}
	const little = 64 << 10
	same, cost := get()
	if cost > little {
		t.Errorf("nothing had changed, and %d bytes came", cost)
	}
	if !bytes.Equal(same, whole(t, s, "/workspace")) || len(same) < 10_000_000 {
		t.Errorf("nothing had changed, and the %d bytes put together are not what the machine packs", len(same))
	}

	must(t, sb, `echo changed > d0/f00; echo new > new; rm -r d1; mv d2 e2; chmod 600 d3/f03; touch d4/*; cp d5/f05 d5/copy; mkdir output; echo out > output/x`)
	changed, cost := get()
	moved := int64(15 * 100_000) // of d2, whose names nobody knows
	if cost > moved+little+2*100_000 {
		t.Errorf("for a small change %d bytes came", cost)
	}
	if !bytes.Equal(changed, whole(t, s, "/workspace")) {
		t.Error("after the change what is put together is not what the machine packs")
	}
	if strings.Contains(string(changed), "d1/") || !strings.Contains(string(changed), "output/x") {
		t.Error("a directory that was removed is there, or a new one is not")
	}

	// What this host does not have any more, as it was sent, travels.
	if err := os.WriteFile(filepath.Join(dir, "d6/f06"), []byte(noise(r, 100_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	again, more := get()
	if !bytes.Equal(again, changed) {
		t.Error("a change on this host shows in what the machine has")
	}
	if more < cost+100_000 {
		t.Errorf("a file that this host has lost was not sent: %d bytes came, and %d before", more, cost)
	}
}

// TestAssembledIsTheWhole changes a workspace at random, in the machine and here, and compares, byte by byte, what is
// put together with what the machine packs.
func TestAssembledIsTheWhole(t *testing.T) {
	local(t)
	h := newHost(t)
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	names := []string{"a", "a-b", "a/b", "b", "b/c", "b/c/d", "b/c d", "c", "c/-x", "c/*", "c/\xff\n", "c/é", "d", "d/e/f/g", "input", "Ä/x"}
	files := map[string]string{}
	for i := range 40 {
		dir := names[r.IntN(len(names))]
		files[fmt.Sprintf("%s.d/%d", dir, i%5)] = noise(r, r.IntN(3000))
	}
	dir := project(t, files)
	if err := os.Symlink("b.d", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	sb := h.box(request(t, dir))
	s := h.theSandbox(sb.ID())
	// Each picks, by a number, one of the entries that there are.
	const pick = `set -e; cd /workspace; export LC_ALL=C
pick() {
	n=$1; find . -mindepth 1 $2 -print0 | sort -z > /tmp/list
	shift 2; all=$(tr -cd '\0' < /tmp/list | wc -c); [ $all -gt 0 ] || return 0
	sed -zn "$((n % all + 1))p" /tmp/list | xargs -0 -r "$@"
}
`
	steps := []string{
		`pick %d '-type f' sh -c 'printf changed >> "$0"'`,
		`pick %d '-type f' sh -c 'n=$(stat -c %%s "$0"); head -c $n /dev/urandom > "$0"'`,
		`pick %d '-type f' sh -c 't=$(stat -c %%Y "$0"); n=$(stat -c %%s "$0"); head -c $n /dev/urandom > "$0"; touch -d @$t "$0"'`,
		`pick %d '-type f' touch -c`, `pick %d '-type f' rm -f`, `pick %d '-type d' rm -rf`,
		`pick %d '-type d' sh -c 'mv "$0" "./moved-$$"'`,
		`pick %d '-type f' sh -c 'mkfifo "$0.fifo"'`,
		`pick %d '-type f' sh -c 'ln "$0" "$0.hard"'`,
		`pick %d '-type f' sh -c 'rm "$0"; mkdir "$0"; echo in > "$0/it"'`,
		`pick %d '-type d' sh -c 'mv "$0" aside-$$; ln -s aside-$$ "$0"'`,
		`pick %d '-type f' sh -c 'ln -sfn /etc/passwd "$0"'`,
		`pick %d '-type d' sh -c 'truncate -s 3M "$0/sparse"; echo end >> "$0/sparse"'`,
		`pick %d '-type d' sh -c ': > "$0/empty"; touch -d @-1.5 "$0/empty"'`,
		`pick %d '-type f' sh -c 'chmod 640 "$0"'`, `pick %d '-type d' sh -c 'chmod 750 "$0"'`,
		`pick %d '-type f' sh -c 'cp -a "$0" "$0.copy"; mv "$0.copy" "$0"'`,
		`mkdir -p output; echo %d > output/x`,
	}
	elsewhere := filepath.Join(project(t, map[string]string{"file": "of nobody's"}), "file") // which later rounds may write through a link to it
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		script := pick
		for range 1 + r.IntN(6) {
			script += fmt.Sprintf(steps[r.IntN(len(steps))], r.IntN(1000)) + " || true\n"
		}
		must(t, sb, script)
		if round%3 == 2 { // the project goes on here as well
			for name := range files {
				if p := filepath.Join(dir, name); r.IntN(4) == 0 {
					if err := errors.Join(os.Remove(p), os.Symlink(elsewhere, p)); err != nil && !errors.Is(err, os.ErrNotExist) {
						t.Fatal(err)
					}
				} else if r.IntN(4) == 0 {
					// A link that an earlier round put there must not be followed.
					if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
						t.Fatal(err)
					}
					if err := os.WriteFile(p, []byte(noise(r, len(files[name]))), 0o644); err != nil && !errors.Is(err, os.ErrPermission) {
						t.Fatal(err)
					}
				}
			}
		}
		if got, want := assembled(t, s, "/workspace"), whole(t, s, "/workspace"); !bytes.Equal(got, want) {
			t.Fatalf("round %d: what is put together (-) is not what the machine packs (+) after\n%s\n%s", round, script, cmp.Diff(members(got), members(want)))
		}
	}
}

// members lists what is in an archive.
func members(b []byte) (out []string) {
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err != nil {
			return out
		}
		sum := sha256.New()
		_, _ = io.Copy(sum, r)
		out = append(out, fmt.Sprintf("%c %o %q %q %s %d %.6x", h.Typeflag, h.Mode, h.Name, h.Linkname, h.ModTime.UTC().Format(time.RFC3339Nano), h.Size, sum.Sum(nil)))
	}
}

// TestLies has a machine lie about what changed, and send something else than it was asked for. Nothing comes of it but
// what it sends or what was sent to it, under names that stay in the tree.
func TestLies(t *testing.T) {
	outside := project(t, map[string]string{"secret": "secret"})
	dir := project(t, map[string]string{"kept": "as it was sent", "edited": "edited here since"})
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	of := func(content string) entry {
		sum := sha256.Sum256([]byte(content))
		return entry{Mode: 0o644, Size: int64(len(content)), Sum: hex.EncodeToString(sum[:]), Stamp: "1 1"}
	}
	s := &sandbox{base: &base{Entries: map[string]entry{"kept": of("as it was sent"), "edited": of("as it was before"), "link": of("secret")}}}
	s.spec.Workspace.Source = dir
	claim := func(e entry) entry { e.Sum = ""; return e } // the stamp says that nothing was changed
	cases := []struct {
		name    string
		listing map[string]entry
		sends   []member
		want    string // content of all files
		refused string
	}{
		{"unchanged", map[string]entry{"kept": claim(of("as it was sent"))}, nil, "as it was sent", ""},
		{"unchanged, and not here any more", map[string]entry{"edited": claim(of("as it was before"))}, []member{file("edited", "what it has")}, "what it has", ""},
		{"unchanged, and a link out of the project here", map[string]entry{"link": claim(of("secret"))}, []member{file("link", "x")}, "x", ""},
		{"a size that was never sent", map[string]entry{"kept": {Size: 7, Stamp: "1 1"}}, []member{file("kept", "another")}, "another", ""},
		{"a file that was never sent", map[string]entry{"../../etc/shadow": {Size: 7, Stamp: "1 1"}}, []member{file("../../etc/shadow", "x")}, "", "leads out"},
		{"another name than was asked for", map[string]entry{"new": of("x")}, []member{file("../new", "x")}, "", "was asked for"},
		{"more than was asked for", map[string]entry{"new": of("x")}, []member{file("new", "x"), file("evil", "x")}, "", "not asked for"},
		{"less than was asked for", map[string]entry{"new": of("x"), "other": of("y")}, []member{file("new", "x")}, "", "it ends before"},
		{"a hard link for a file", map[string]entry{"new": of("x")}, []member{{name: "new", link: "/etc/passwd", typ: tar.TypeLink}}, "", "hard link"},
		{"a file below a link", map[string]entry{"l": {Mode: fs.ModeSymlink, Link: "/etc"}, "l/passwd": of("x")}, []member{file("l/passwd", "x")}, "", "no directory"},
		{"a file below a file that is here", map[string]entry{"kept": claim(of("as it was sent")), "kept/x": of("x")}, []member{file("kept/x", "x")}, "", "no directory"},
		{"an archive where nothing was asked for", map[string]entry{"kept": claim(of("as it was sent"))}, []member{file("evil", "x")}, "", "not asked for"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s.settle(c.listing)
			a := &assembly{s: s, rel: ".", now: c.listing, asked: map[string]bool{}}
			defer a.close()
			if err := a.plan(t.Context()); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := unzip(bytes.NewReader(archive(t, c.sends...)), func(r io.Reader) error { return a.write(newTaker(t.Context(), &out), newIncoming(r)) })
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) || sdk.ReasonOf(err) != sdk.ReasonDenied {
					t.Fatalf("got %v; want it refused, with %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for r := tar.NewReader(&out); ; {
				if _, err := r.Next(); err != nil {
					break
				}
				b, _ := io.ReadAll(r)
				got += string(b)
			}
			if got != c.want {
				t.Errorf("it came to %q, want %q", got, c.want)
			}
		})
	}
}

// TestProgress: both ways tell how far they are, up to all of it.
func TestProgress(t *testing.T) {
	local(t)
	h := newHost(t)
	r := rand.New(rand.NewPCG(5, 6))
	type amount struct{ done, total int64 }
	steps := map[string][]amount{}
	tell := func(step string, done, total int64) { steps[step] = append(steps[step], amount{done, total}) }
	sb := h.box(request(t, project(t, map[string]string{"big": noise(r, 5_000_000)}), func(r *sdk.CreateRequest) { r.Progress = tell }))
	must(t, sb, "head -c 5000000 /dev/urandom > big")
	if err := sb.Get(sdk.WithProgress(t.Context(), tell), "/workspace", sdk.FormatTar, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"sending files", "fetching files"} {
		all := steps[step]
		if len(all) < 5 {
			t.Fatalf("%s: step %v; all steps are %v", step, all, steps)
		}
		for i, s := range all {
			if i > 0 && s.done <= all[i-1].done || s.done > s.total || s.total < 5_000_000 {
				t.Errorf("%s: step %v", step, all)
				break
			}
		}
		if last := all[len(all)-1]; last.done < last.total*9/10 {
			t.Errorf("%s: the last word was %v", step, last)
		}
	}
	if len(steps["packing what comes back"]) == 0 {
		t.Errorf("the steps were %v", steps)
	}
}

// TestAssemblyFaults breaks the way back of what changed: either the whole comes, or an error.
func TestAssemblyFaults(t *testing.T) {
	server := local(t)
	h := newHost(t)
	r := rand.New(rand.NewPCG(3, 4))
	sb := h.box(request(t, project(t, map[string]string{"a": noise(r, 1000), "b": "b\n"})))
	must(t, sb, "head -c 300000 /dev/urandom > big; echo more >> b")
	s := h.theSandbox(sb.ID())
	want := whole(t, s, "/workspace")
	const start = "/process.Process/Start"
	cases := []struct {
		name  string
		fault e2btest.Fault
		works bool
	}{
		{"the list is cut", e2btest.Fault{Path: start, CutMessages: ptr(2)}, true},
		{"the list is cut quietly", e2btest.Fault{Path: start, CutMessages: ptr(2), Quiet: true}, true},
		{"the names of what is asked for do not arrive", e2btest.Fault{Method: "POST", Path: "/files", Upload: ptr(int64(1)), Quiet: true}, true},
		{"the packing is not reported", e2btest.Fault{Path: start, CutMessages: ptr(1), Skip: 1}, true},
		{"the archive is cut", e2btest.Fault{Method: "GET", Path: "/files", CutBytes: ptr(int64(1000))}, true},
		{"the archive is cut quietly", e2btest.Fault{Method: "GET", Path: "/files", CutBytes: ptr(int64(1000)), Quiet: true}, true},
		{"the archive is cut again and again", e2btest.Fault{Method: "GET", Path: "/files", CutBytes: ptr(int64(10)), Times: -1}, false},
		{"the archive is another one", e2btest.Fault{Method: "GET", Path: "/files", Status: 200, Body: string(archive(t, file("b", "x"), file("big", "y")))}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fault := server.Inject(c.fault)
			defer fault.Remove()
			var out bytes.Buffer
			err := sb.Get(t.Context(), "/workspace", sdk.FormatTar, &out)
			if fault.Hits() == 0 {
				t.Fatal("the fault was never met")
			}
			switch {
			case c.works && err != nil:
				t.Errorf("it failed: %v", err)
			case !c.works && err == nil:
				t.Error("it succeeded")
			case c.works && !bytes.Equal(out.Bytes(), want):
				t.Error("what came is not what the machine packs")
			}
		})
	}
	if got := must(t, sb, `ls -A /var/lib/hutch /var/lib/hutch/jobs/user | grep -vxE "/var/.*|base.tgz|jobs|" || true`); got != "" {
		t.Errorf("left in the machine: %q", got)
	}
}

// TestInputOfAPersistentSandbox: a process that finds the sandbox again knows its input, which is no change of the
// workspace, and which a reset leaves alone.
func TestInputOfAPersistentSandbox(t *testing.T) {
	local(t)
	h := newHost(t)
	sb := h.box(request(t, project(t, map[string]string{"a": "a\n"}), func(r *sdk.CreateRequest) {
		r.Keep = true
		r.Input = project(t, map[string]string{"in": "in\n"})
	}))
	must(t, sb, "echo more >> a")
	again, err := newHost(t).Attach(t.Context(), sb.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if ch, err := again.Changes(t.Context()); err != nil || len(ch) != 1 || ch[0].Path != "a" {
		t.Errorf("the changes are %+v %v", ch, err)
	}
	if err := again.Reset(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := must(t, again, "cat a /input/in"); got != "a\nin\n" {
		t.Errorf("after a reset there is %q", got)
	}
	if ch, err := again.Changes(t.Context()); err != nil || len(ch) != 0 {
		t.Errorf("after a reset the changes are %+v %v", ch, err)
	}
	if err := again.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}
