package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

// TestUnionEqualsOverlay does the same random operations of the file tools to a sandbox with an overlay and to one
// whose layers nobody merges but these tools. Answers, trees and changes must be the same after each.
func TestUnionEqualsOverlay(t *testing.T) {
	t.Parallel()
	dir, b := project(t), newBackend()
	make := func(over string) *sandbox {
		spec := private(t, dir)
		cfg := *spec.Config.(*Config)
		cfg.Overlay = over
		spec.Config = &cfg
		return newSandbox(t, b, spec)
	}
	one, two := make(overlayNative), make(overlayUnion)
	const rounds = 60
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	names := []string{"a.txt", "b.txt", "dir", "dir/c.txt", "dir/d.txt", "dir/x", "new", "new/y", "new/y/z", "dir/x/w"}
	for i := range rounds {
		name := path.Join(workspacePath, names[r.IntN(len(names))])
		n := r.IntN(100)
		var what string
		var do func(s *sandbox) error
		switch {
		case n < 30:
			what = "put file " + name
			do = func(s *sandbox) error {
				return s.Put(t.Context(), name, sdk.FormatFile, strings.NewReader(fmt.Sprint("round ", i)))
			}
		case n < 55:
			tree := tarOf(t, names[r.IntN(len(names))], fmt.Sprint("tree ", i), r.IntN(3) == 0)
			what = "put tree at " + name
			do = func(s *sandbox) error { return s.Put(t.Context(), name, sdk.FormatTar, bytes.NewReader(tree)) }
		case n < 90:
			recursive := r.IntN(2) == 0
			what = fmt.Sprint("remove ", name, " ", recursive)
			do = func(s *sandbox) error { return s.Remove(t.Context(), name, recursive) }
		default:
			what = "get " + name
			do = func(s *sandbox) error { return s.Get(t.Context(), name, sdk.FormatFile, io.Discard) }
		}
		err1, err2 := do(one), do(two)
		if (err1 == nil) != (err2 == nil) || err1 != nil && sdk.ReasonOf(err1) != sdk.ReasonOf(err2) {
			t.Fatalf("seed %d, round %d, %s: the overlay says %v, the union %v", seed, i, what, err1, err2)
		}
		if diff := cmp.Diff(view(t, one), view(t, two)); diff != "" {
			t.Fatalf("seed %d, round %d, %s: the trees differ (-overlay +union):\n%s", seed, i, what, diff)
		}
		c1, err1 := one.Changes(t.Context())
		c2, err2 := two.Changes(t.Context())
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c1, c2); diff != "" {
			t.Fatalf("seed %d, round %d, %s: the changes differ (-overlay +union):\n%s", seed, i, what, diff)
		}
	}
}

// tarOf is a tree with one file, or a symbolic link in its place, and the directories above it.
func tarOf(t *testing.T, name, data string, link bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640, Size: int64(len(data))}
	if link {
		h, data = &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: "elsewhere"}, ""
	}
	if err := w.WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	_, err := io.WriteString(w, data)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// view is the workspace as Get shows it.
func view(t *testing.T, s *sandbox) []string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Get(t.Context(), workspacePath, sdk.FormatTar, &b); err != nil {
		t.Fatal(err)
	}
	var out []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%c %s %o %q %q", h.Typeflag, h.Name, h.Mode, h.Linkname, data))
	}
}
