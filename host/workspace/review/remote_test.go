package review

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

// farBox is a sandbox that can only be asked.
type farBox struct {
	f       *fixture
	changes []sdk.Change // instead of the true ones
	stream  []byte       // instead of the true one
}

func (b *farBox) Changes(ctx context.Context) ([]sdk.Change, error) {
	if b.changes != nil {
		return b.changes, nil
	}
	lower, err := os.OpenRoot(b.f.project)
	if err != nil {
		return nil, err
	}
	defer lower.Close()
	upper, err := os.OpenRoot(b.f.upper)
	if err != nil {
		return nil, err
	}
	defer upper.Close()
	return overlay.Changes(ctx, lower, upper, overlay.Options{})
}

func (b *farBox) Get(ctx context.Context, path string, format sdk.Format, w io.Writer) error {
	if path != "/workspace" || format != sdk.FormatTar {
		return sdk.Errorf(sdk.ReasonNotFound, "%s as %s", path, format)
	}
	if b.stream != nil {
		_, err := w.Write(b.stream)
		return err
	}
	merged, err := os.OpenRoot(b.f.merged)
	if err != nil {
		return err
	}
	defer merged.Close()
	_, err = tree.Pack(ctx, merged, w, tree.PackOptions{Special: true})
	return err
}

func (b *farBox) open(t *testing.T) (*Review, error) {
	s := b.f.subject()
	s.Layers, s.Remote = nil, b
	return Open(t.Context(), s, Options{Keep: b.f.ledger.Dir()})
}

// TestRemoteIsTheSame reviews one sandbox both ways.
func TestRemoteIsTheSame(t *testing.T) {
	f := zoo(t)
	near := f.open()
	far, err := (&farBox{f: f}).open(t)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	var a, b bytes.Buffer
	if err := near.Unified(t.Context(), &a, Style{}); err != nil {
		t.Fatal(err)
	}
	if err := far.Unified(t.Context(), &b, Style{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(a.String(), b.String()); d != "" {
		t.Errorf("(-layers +contract):\n%s", d)
	}
	before := pictureOf(f.project, true)
	if _, err := f.apply(far, everything()); err != nil {
		t.Fatal(err)
	}
	f.remove("input", "output")
	if d := cmp.Diff(pictureOf(f.merged, false), pictureOf(f.project, false)); d != "" {
		t.Errorf("the project after the apply (-sandbox +project):\n%s", d)
	}
	if _, err := f.ledger.Undo(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, pictureOf(f.project, true)); d != "" {
		t.Errorf("after the undo (-before +after):\n%s", d)
	}
}

func TestRemoteLies(t *testing.T) {
	archive := func(headers ...*tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			w.Write(make([]byte, h.Size))
		}
		w.Close()
		return b.Bytes()
	}
	for name, c := range map[string]struct {
		box  farBox
		want string
	}{
		"a path that leads out": {farBox{changes: []sdk.Change{{Path: "../evil", Kind: overlay.Added}}}, `names the path ../evil`},
		"an absolute path":      {farBox{changes: []sdk.Change{{Path: "/evil", Kind: overlay.Added}}}, `names the path /evil`},
		"a file that is listed and not sent": {farBox{changes: []sdk.Change{{Path: "new", Kind: overlay.Added, NewMode: 0o644}}, stream: archive()},
			"does not send it"},
		"a stream that is cut": {farBox{changes: []sdk.Change{{Path: "new", Kind: overlay.Added}}, stream: archive(&tar.Header{Name: "new", Size: 9000, Mode: 0o644})[:4096]},
			"unexpected EOF"},
		"no archive at all": {farBox{changes: []sdk.Change{{Path: "new", Kind: overlay.Added}}, stream: bytes.Repeat([]byte("x"), 2048)}, "invalid tar header"},
	} {
		t.Run(name, func(t *testing.T) {
			c.box.f = newFixture(t, "a=1")
			r, err := c.box.open(t)
			if err == nil {
				r.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
	t.Run("a file that is too big to be sent", func(t *testing.T) {
		big := tree.LeaveOut(&tar.Header{Name: "big", Mode: 0o644}, safefile.ReasonTooBig, "1099511627776 bytes, and that is too much")
		b := &farBox{f: newFixture(t, "a=1"), changes: []sdk.Change{{Path: "big", Kind: overlay.Added, NewMode: 0o644, Size: 1 << 40}}, stream: archive(big)}
		r, err := b.open(t)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if len(r.Changes) != 1 {
			t.Fatalf("there are %d changes", len(r.Changes))
		}
		c := r.Changes[0]
		if c.New.Type != File || c.New.Size != 1<<40 || slices.ContainsFunc(c.Refused, func(f judge.Finding) bool { return f.Rule == judge.Special }) {
			t.Errorf("it is taken for %+v, refused %+v", c.New, c.Refused)
		}
	})
	t.Run("a device and a link where the list says file", func(t *testing.T) {
		b := &farBox{f: newFixture(t, "a=1"), changes: []sdk.Change{{Path: "dev", Kind: overlay.Added, NewMode: 0o644}, {Path: "link", Kind: overlay.Added, NewMode: 0o644}},
			stream: archive(&tar.Header{Name: "dev", Typeflag: tar.TypeChar, Mode: 0o666}, &tar.Header{Name: "./link", Typeflag: tar.TypeSymlink, Linkname: "/etc/shadow"})}
		r, err := b.open(t)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got := map[string]judge.Rule{}
		for _, c := range r.Changes {
			for _, f := range c.Refused {
				got[c.Path] = f.Rule
			}
		}
		if d := cmp.Diff(map[string]judge.Rule{"dev": judge.Special, "link": judge.Links}, got); d != "" {
			t.Errorf("refused (-want +got):\n%s", d)
		}
	})
}

// FuzzTake takes any stream for what was changed: it keeps what was asked for, in its own directory, and nothing else.
func FuzzTake(f *testing.F) {
	for _, h := range []tar.Header{
		{Name: "./a", Mode: 0o7777777, Typeflag: tar.TypeReg, Size: 1}, {Name: "../a", Typeflag: tar.TypeReg, Size: 1}, {Name: "d/", Typeflag: tar.TypeDir},
		{Name: "d", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "a", Typeflag: tar.TypeLink, Linkname: "d"}, {Name: "a", Typeflag: tar.TypeFifo},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
		_, _ = w.Write([]byte("x")) // one without content takes none
		_ = w.Close()
		f.Add(b.Bytes())
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &remote{dir: dir, files: map[string]remoteFile{}}
		wanted := map[string]bool{"a": true, "d": true, "d/b": true, "gone": false}
		err := s.take(t.Context(), tar.NewReader(bytes.NewReader(data)), wanted)
		for name, got := range s.files {
			if !wanted[name] || got.node.Type != typeOf(got.node.Mode) || got.node.Type != File && got.at != "" {
				t.Errorf("%s: %+v", name, got)
			}
			if st, serr := os.Lstat(got.at); got.at != "" && err == nil && (serr != nil || st.Size() != got.node.Size || filepath.Dir(got.at) != dir) {
				t.Errorf("%s: %+v: %v", name, got, serr)
			}
		}
	})
}
