package review

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// zoo has a change of every kind in it.
func zoo(t *testing.T) *fixture {
	var long strings.Builder
	for i := range 40 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	f := newFixture(t, "a.txt=one\ntwo\nthree\n", "long.txt="+long.String(), "noeol=x", "bin=\x00\x01old", "gone.txt=g\n", "dir/old.txt=o\n", "link->a.txt",
		"script*=#!/bin/sh\n", "becomes-link=text\n", "becomes-dir=text\n", "becomes-file/in=z\n", "moved/from.txt=the same\ncontent\n", "empty", "spaced name=s\n")
	f.write("a.txt=one\n2\nthree\n", "long.txt="+strings.NewReplacer("line 3\n", "line three\n", "line 6\n", "", "line 30\n", "line 30\nextra\n").Replace(long.String()),
		"noeol=x\n", "bin=\x00\x01new!", "new.txt=n\n", "new/deep/file=\n", "new-empty", "link->long.txt", "moved/to.txt=the same\ncontent\n",
		"hostile\x1b[2Jname\n=\x1b]0;owned\x07\r\nbell\x07\n", "caf\xe9=latin\xe9\n", "spaced name=S\n")
	f.remove("gone.txt", "dir", "becomes-link", "becomes-dir", "becomes-file", "moved/from.txt", "empty")
	f.write("becomes-link->a.txt", "becomes-dir/in=d\n", "becomes-file=text\n")
	if err := os.Chmod(filepath.Join(f.merged, "script"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.seal()
	return f
}

func TestRender(t *testing.T) {
	f := zoo(t)
	r, err := Open(t.Context(), f.subject(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, c := range []struct {
		name   string
		render func(*bytes.Buffer) error
	}{
		{"unified.golden", func(b *bytes.Buffer) error { return r.Unified(t.Context(), b, Style{}) }},
		{"terminal.golden", func(b *bytes.Buffer) error { return r.Unified(t.Context(), b, Style{Terminal: true, Color: true}) }},
		{"stat.golden", func(b *bytes.Buffer) error { return r.Stat(t.Context(), b, Style{Width: 60}) }},
		{"names.golden", func(b *bytes.Buffer) error { return r.Names(b) }},
		{"document.golden", func(b *bytes.Buffer) error {
			d, err := r.Document(t.Context())
			if err != nil {
				return err
			}
			d.Project = "/project"
			enc := json.NewEncoder(b)
			enc.SetIndent("", " ")
			return enc.Encode(d)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := c.render(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, c.name, b.Bytes())
			if c.name == "terminal.golden" && (bytes.Contains(b.Bytes(), []byte("\x1b[2J")) || bytes.ContainsAny(b.Bytes(), "\x07\r")) {
				t.Error("a sandbox's control characters reach the terminal")
			}
		})
	}
}

// TestPatch gives the unified diff to git, which must make of the project what the sandbox saw. Git knows no
// directories of their own, modes but for the execute bit, nor the content of binary files, so those are not in it.
func TestPatch(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		if strings.Contains(os.Getenv("HUTCH_TEST_REQUIRE"), "git") {
			t.Fatal("git is required and not installed")
		}
		t.Skip("git is not installed")
	}
	f := zoo(t)
	os.RemoveAll(f.upper)
	os.Mkdir(f.upper, 0o755)
	f.remove("new-empty")
	os.Mkdir(filepath.Join(f.merged, "empty"), 0o755)
	f.write("bin=\x00\x01old")
	f.seal()
	r, err := Open(t.Context(), f.subject(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var patch bytes.Buffer
	if err := r.Unified(t.Context(), &patch, Style{}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), git, "apply", "-p1", "-")
	cmd.Dir, cmd.Stdin = f.project, &patch
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(f.project), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s\n%s", err, out, patch.Bytes())
	}
	os.Mkdir(filepath.Join(f.project, "empty"), 0o755)
	if d := cmp.Diff(pictureOf(f.merged, false), pictureOf(f.project, false)); d != "" {
		t.Errorf("what git made of the patch (-sandbox +git):\n%s", d)
	}
}
