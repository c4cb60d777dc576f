package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/host/release"
)

// entry is one of an archive.
type entry struct {
	name string
	kind byte // tar's; 0 is a file
	mode int64
	body string
	link string
}

const program = "hutch-backend-acme"

var good = entry{name: program, mode: 0o755, body: "#!/bin/sh\n"}

func tarGz(t *testing.T, entries []entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: e.mode, Linkname: e.link, Size: int64(len(e.body)), Devmajor: 1, Devminor: 3}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// offer makes a release of archive bytes that are what the manifest says.
func (w *world) offer(archive []byte, binary string) {
	w.t.Helper()
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	m := &release.Manifest{Name: "acme", Version: "1.0.0", Protocols: []int{1}, Archives: []release.Archive{{
		Platform: here, File: "a.tar.gz", Size: int64(len(archive)), SHA256: sum(archive), BinarySHA256: sum([]byte(binary)),
	}}}
	raw, err := m.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(filepath.Join(w.dist, "a.tar.gz"), string(archive), 0o644)
	w.write(filepath.Join(w.dist, release.ManifestName("acme", "1.0.0")), string(raw), 0o644)
}

// A publisher whose manifest is right about an archive that is not.
func TestHostileArchives(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []entry
		want    string // "" for one that is taken
	}{
		{"a good one", []entry{good, {name: "share", kind: tar.TypeDir, mode: 0o755}, {name: "share/x", mode: 0o644, body: "x"}}, ""},
		{"out of it", []entry{good, {name: "../../evil", mode: 0o644, body: "x"}}, "evil"},
		{"absolute", []entry{good, {name: "ABSOLUTE/evil", mode: 0o644, body: "x"}}, "evil"},
		{"a link out of it", []entry{good, {name: "l", kind: tar.TypeSymlink, mode: 0o777, link: "../../../etc"}}, `"l"`},
		{"through a link", []entry{{name: "d", kind: tar.TypeSymlink, mode: 0o777, link: "."}, {name: "d/hutch-backend-acme", mode: 0o755, body: "x"}, good}, `"d`},
		{"a hard link", []entry{good, {name: "h", kind: tar.TypeLink, link: program}}, `"h"`},
		{"a device", []entry{good, {name: "null", kind: tar.TypeChar, mode: 0o666}}, `"null"`},
		{"the program is a link", []entry{{name: "x", mode: 0o755, body: "#!/bin/sh\n"}, {name: program, kind: tar.TypeSymlink, mode: 0o777, link: "x"}}, program},
		{"twice", []entry{good, good}, program},
		{"no program", []entry{{name: "README", mode: 0o644, body: "x"}}, "there is no " + program},
		{"not executable", []entry{{name: program, mode: 0o644, body: "#!/bin/sh\n"}}, "is not executable"},
		{"another program", []entry{{name: program, mode: 0o755, body: "#!/bin/bash\n"}}, "is not the one of the manifest"},
		{"a directory in its place", []entry{{name: program, kind: tar.TypeDir, mode: 0o755}}, program},
		{"its own manifest", []entry{good, {name: keptManifest, mode: 0o644, body: "{}"}}, keptManifest},
		{"its own signature", []entry{good, {name: keptSignature, mode: 0o644, body: "x"}}, keptSignature},
		{"nothing", nil, "there is no " + program},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			outside := t.TempDir()
			entries := slices.Clone(tt.entries)
			for i := range entries {
				entries[i].name = strings.Replace(entries[i].name, "ABSOLUTE", outside, 1)
			}
			w.offer(tarGz(t, entries), good.body)
			if tt.want == "" {
				w.must(InitOptions{}, w.requires("./dist", ""))
			} else {
				w.refused(tt.want, InitOptions{}, w.requires("./dist", ""))
				if left, _ := filepath.Glob(filepath.Join(w.Dir, "acme", "*", "*", "*")); len(left) > 0 {
					t.Errorf("installed all the same: %v", left)
				}
			}
			if left, _ := os.ReadDir(outside); len(left) > 0 {
				t.Errorf("it wrote elsewhere: %v", left)
			}
		})
	}
}

func TestBrokenArchives(t *testing.T) {
	whole := tarGz(t, []entry{good})
	for name, b := range map[string][]byte{"half": whole[:len(whole)/2], "text": []byte("hello")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.offer(b, good.body)
			if _, err := w.init(InitOptions{}, w.requires("./dist", "")); err == nil {
				t.Error("it was taken")
			}
			w.clean()
		})
	}
}

var isBound = regexp.MustCompile(`more than|larger than|at most`)

// Small archives that unpack to much are refused before they fill the disk.
func TestBombs(t *testing.T) {
	defer func(old int64) { caps.Bytes = old }(caps.Bytes)
	caps.Bytes = 1 << 20
	bomb := []entry{good, {name: "zeros", mode: 0o644, body: string(make([]byte, 4<<20))}}
	var many []entry
	for i := range caps.Entries + 1 {
		many = append(many, entry{name: fmt.Sprintf("f%d", i), mode: 0o644})
	}
	for name, b := range map[string][]byte{"zeros": tarGz(t, bomb), "many": tarGz(t, append(many, good))} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.offer(b, good.body)
			_, err := w.init(InitOptions{}, w.requires("./dist", ""))
			if err == nil || !isBound.MatchString(err.Error()) {
				t.Errorf("got %v", err)
			}
			w.clean()
		})
	}
}

// An archive alone is a release for its platform.
func TestOneArchive(t *testing.T) {
	w := newWorld(t)
	b := tarGz(t, []entry{good})
	name := "hutch-backend-acme_1.4.0_linux_amd64.tar.gz"
	w.write(filepath.Join(w.dist, name), string(b), 0o644)
	got := w.must(InitOptions{}, w.requires("./dist/"+name, ">= 1.0"))
	if got.Version != "1.4.0" || w.program(got.Path) != good.body {
		t.Errorf("got %+v", got)
	}
	if got := w.must(InitOptions{Locked: true}, w.requires("./dist/"+name, ">= 1.0")); got.Fetched {
		t.Errorf("got %+v", got)
	}
	w.write(filepath.Join(w.dist, "hutch-backend-acme"), "x", 0o755)
	w.refused("backend_paths", InitOptions{Upgrade: true}, w.requires("./dist/hutch-backend-acme", ""))
	w.write(filepath.Join(w.dist, "x.tar.gz"), string(b), 0o644)
	w.refused("is neither a directory of releases nor an archive", InitOptions{Upgrade: true}, w.requires("./dist/x.tar.gz", ""))
}
