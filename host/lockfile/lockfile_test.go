package lockfile

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/diag"
)

var update = flag.Bool("update", false, "rewrite golden files")

func hash(c string) string { return strings.Repeat(c, 64) }

// sample is a file with everything in it, in no good order.
func sample() *File {
	return &File{Backends: []Backend{
		{Name: "zebra", Source: "./dist", Version: "0.9.0-rc.1", Protocols: []int{1}, Platforms: []Platform{{"linux/amd64", hash("1"), hash("2"), ""}}},
		{
			Name: "acme", Source: "registry.example.com/acme/hutch-backend-acme", Constraint: "~> 1.2, != 1.2.1", Version: "1.2.3",
			Protocols: []int{1, 2}, Manifest: hash("a"), SignedBy: "0123456789ABCDEF",
			Platforms: []Platform{{"linux/arm64", hash("b"), hash("c"), hash("3")}, {"darwin/arm64", hash("d"), hash("e"), ""}, {"linux/amd64", hash("f"), hash("0"), hash("4")}},
		},
	}}
}

func TestGolden(t *testing.T) {
	got := sample().Bytes()
	path := filepath.Join("testdata", "sample.golden.hcl")
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
		t.Errorf("(-want +got)\n%s", d)
	}
	read, err := Parse(path, want)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(read.Bytes())); d != "" {
		t.Errorf("read and written again (-want +got)\n%s", d)
	}
	if l := read.Find("acme"); l == nil || l.SignedBy != "0123456789ABCDEF" || l.Constraint != "~> 1.2, != 1.2.1" {
		t.Errorf("got %+v", l)
	}
	if p, ok := read.Find("acme").For("darwin/arm64"); !ok || p.Binary != hash("e") {
		t.Errorf("got %+v %v", p, ok)
	}
	if read.Find("nobody") != nil || (*File)(nil).Find("acme") != nil {
		t.Error("found what is not there")
	}
}

func TestBadFiles(t *testing.T) {
	good := string(sample().Bytes())
	change := func(old, new string) string {
		t.Helper()
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the sample", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	twice := `backend "a" {
  source = "./x"
  version = "1.0.0"
  protocols = [1]
  platform "linux/amd64" {
    archive_sha256 = "` + hash("a") + `"
    binary_sha256 = "` + hash("a") + `"
  }
}
`
	for _, tt := range []struct{ name, src, want string }{
		{"syntax", `backend "a" {`, "Unclosed configuration block"},
		{"noise", "garbage {{{\n%%%%\nfoo =\nbar baz\n", "this is no lock file"},
		{"unknown block", `provider "a" {}`, "Unsupported block type"},
		{"unknown argument", change("source ", "sauce "), "Missing required argument"},
		{"an expression", change(`"1.2.3"`, `var.version`), "Variables not allowed"},
		{"a function", change(`"1.2.3"`, `file("/etc/passwd")`), "Function calls not allowed"},
		{"a path as name", change(`backend "acme"`, `backend "../acme"`), `"../acme" is no name of a backend`},
		{"a path as version", change(`"1.2.3"`, `"../../1.2.3"`), "is no version of a release"},
		{"a path as platform", change(`platform "darwin/arm64"`, `platform "../../x"`), "is no platform"},
		{"a short hash", change(hash("f"), "f"), `"f" is no SHA-256`},
		{"a short hash of what lies beside", change(hash("4"), "4"), `"4" is no SHA-256`},
		{"upper case", change(hash("f"), hash("F")), "is no SHA-256"},
		{"a hash that is a path", change(hash("f"), "../"+hash("f")[3:]), "is no SHA-256"},
		{"no protocol", change("[1, 2]", "[]"), "not positive numbers"},
		{"protocols in no order", change("[1, 2]", "[2, 1]"), "not positive numbers"},
		{"protocol zero", change("[1, 2]", "[0]"), "not positive numbers"},
		{"control characters", change("./dist", `\u001b[31m`), "source is not one line of plain text"},
		{"C1 control characters", change("./dist", `\u009b31m`), "source is not one line of plain text"},
		{"twice", twice + twice, `the backend "a" is locked twice`},
		{"no platform", `backend "a" {
  source = "./x"
  version = "1.0.0"
  protocols = [1]
}`, "names no platform"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("x.hcl", []byte(tt.src))
			var ds diag.Diagnostics
			if !errors.As(err, &ds) || len(ds) != 1 || ds[0].Range == nil || ds[0].Fix == "" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q alone, with its place and a fix", err, tt.want)
			}
		})
	}
	if _, err := Parse("x.hcl", bytes.Repeat([]byte("#"), maxSize+1)); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a giant: %v", err)
	}
}

func TestOnDisk(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
	if err := sample().Write(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, Name)
	// What a person added to it stays while nothing else is to be changed.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	noted := append(b, "# a note\n"...)
	if err := os.WriteFile(path, noted, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sample().Write(dir); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, noted) {
		t.Errorf("got %q, %v", b, err)
	}
	f := sample()
	f.Remove("zebra")
	if err := f.Write(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(dir); err != nil || len(got.Backends) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("got %v, %v", st.Mode(), err)
	}
	// A FIFO in its place must not stop anybody.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a FIFO: %v", err)
	}
}

// FuzzParse checks that what is read can be written, and is the same when it is read again.
func FuzzParse(f *testing.F) {
	f.Add(sample().Bytes())
	f.Add([]byte(`backend "a" {}`))
	f.Add([]byte("backend \"a\" {\n source = \"${1}\"\n}"))
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := Parse("fuzz.hcl", src)
		if err != nil {
			return
		}
		again, err := Parse("again.hcl", file.Bytes())
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, file.Bytes())
		}
		if d := cmp.Diff(file, again); d != "" {
			t.Fatalf("(-first +second)\n%s", d)
		}
	})
}
