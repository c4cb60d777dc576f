package backend

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBeside(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
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
	program := filepath.Join(dir, Prefix+"acme")
	write(Prefix+"acme", "the program", 0o755)
	none, err := BesideSHA256(dir, "acme")
	if err != nil || none != NewBesideHash().Sum() {
		t.Fatalf("got %s, %v", none, err)
	}
	write("LICENSE", "do what you like", 0o644)
	write("lib/agent", "an agent", 0o755)
	write(KeptPrefix, "hutch's own", 0o644)
	if err := os.Symlink("lib/agent", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	sum, err := BesideSHA256(dir, "acme")
	if err != nil || sum == none {
		t.Fatalf("got %s, %v", sum, err)
	}
	write(Prefix+"acme", "another program", 0o755) // its hash is another one
	for range 2 {                                  // the second time nothing is read
		if err := checkBeside(program, "acme", sum, cache); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	relink := func(to string) {
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string][2]func(){
		"another content":   {func() { write("lib/agent", "an angel", 0o755) }, func() { write("lib/agent", "an agent", 0o755) }},
		"a mode":            {func() { write("LICENSE", "do what you like", 0o755) }, func() { write("LICENSE", "do what you like", 0o644) }},
		"one more":          {func() { write("lib/more", "", 0o644) }, func() { os.Remove(filepath.Join(dir, "lib", "more")) }},
		"one less":          {func() { os.Remove(filepath.Join(dir, "LICENSE")) }, func() { write("LICENSE", "do what you like", 0o644) }},
		"a link":            {func() { relink("LICENSE") }, func() { relink("lib/agent") }},
		"a file for a link": {func() { os.Remove(link); write("link", "lib/agent", 0o644) }, func() { relink("lib/agent") }},
	} {
		for _, c := range []string{cache, ""} {
			change[0]()
			if err := checkBeside(program, "acme", sum, c); !errors.Is(err, errBeside) {
				t.Errorf("%s: %v", name, err)
			}
			change[1]()
			if err := checkBeside(program, "acme", sum, c); err != nil {
				t.Errorf("%s taken back: %v", name, err)
			}
		}
	}
	for i := range maxBeside + 1 {
		write(filepath.Join("many", strings.Repeat("x", i%50+1)+string(rune('a'+i/50))), "", 0o644)
	}
	if err := checkBeside(program, "acme", sum, cache); err == nil || !strings.Contains(err.Error(), "more than 2000 files") {
		t.Errorf("many files: %v", err)
	}
}
