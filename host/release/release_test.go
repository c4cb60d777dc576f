package release

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sample() *Manifest {
	h := func(c string) string { return strings.Repeat(c, 64) }
	return &Manifest{Name: "acme", Version: "1.2.3-rc.1", Protocols: []int{2, 1}, Archives: []Archive{
		{"linux/arm64", "a_linux_arm64.tar.gz", 10, h("a"), h("b"), ""},
		{"darwin/arm64", "a_darwin_arm64.tar.gz", 20, h("c"), h("d"), h("e")},
	}}
}

func TestManifest(t *testing.T) {
	raw, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"darwin/arm64", "linux/arm64"}, m.Platforms()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int{1, 2}, m.Protocols); d != "" {
		t.Error(d)
	}
	if _, ok := m.For("linux/amd64"); ok {
		t.Error("found what is not there")
	}
	// A newer hutch may write more.
	if _, err := Parse([]byte(strings.Replace(string(raw), `"name"`, `"mirrors": ["x"], "name"`, 1))); err != nil {
		t.Errorf("a field of the future: %v", err)
	}
	if name, version, ok := SplitManifestName(ManifestName("acme-x", "1.2.3-rc.1")); !ok || name != "acme-x" || version != "1.2.3-rc.1" {
		t.Errorf("got %q %q %v", name, version, ok)
	}
	for _, name := range []string{"manifest.json", "hutch-backend-_1.0.0_manifest.json", "hutch-backend-a_x_manifest.json", "hutch-backend-a_1.0.0_manifest.json.minisig"} {
		if _, _, ok := SplitManifestName(name); ok {
			t.Errorf("%s was taken for a manifest", name)
		}
	}
}

func TestBadManifests(t *testing.T) {
	raw, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	good := string(raw)
	for _, tt := range []struct{ old, new, want string }{
		{`hutch.release/v1`, `hutch.release/v2`, "this hutch reads hutch.release/v1"},
		{`"acme"`, `"../acme"`, "is no name of a backend"},
		{`1.2.3-rc.1`, `1.2`, "is no version of a release"},
		{`1.2.3-rc.1`, `1.2.3+build`, "is no version of a release"},
		{`1.2.3-rc.1`, `../1.2.3`, "is no version of a release"},
		{`darwin/arm64`, `../../x`, "is no platform"},
		{`darwin/arm64`, `linux/arm64`, "platform linux/arm64 is there twice"},
		{`a_darwin_arm64.tar.gz`, `../x.tar.gz`, "plain name of a file"},
		{`a_darwin_arm64.tar.gz`, `d/x.tar.gz`, "plain name of a file"},
		{`a_darwin_arm64.tar.gz`, `a_linux_arm64.tar.gz`, "is there twice"},
		{`a_darwin_arm64.tar.gz`, `a.exe`, "must end in .tar.gz"},
		{`"size": 20`, `"size": -1`, "its size is -1"},
		{`"size": 20`, `"size": 99999999999999`, "must be between"},
		{`"size": 20`, `"size": "x"`, "cannot unmarshal"},
		{`cccc`, `cccC`, "is no SHA-256"},
		{`eeee`, `eeeE`, "is no SHA-256"},
		{"\"protocols\": [\n    1,\n    2\n  ]", `"protocols": []`, "no protocol"},
		{"    1,\n    2\n", `0`, "positive numbers"},
	} {
		if !strings.Contains(good, tt.old) {
			t.Fatalf("%q is not in the sample", tt.old)
		}
		if _, err := Parse([]byte(strings.Replace(good, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.new, err, tt.want)
		}
	}
	if _, err := Parse(make([]byte, MaxManifest+1)); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a giant: %v", err)
	}
}

func TestPack(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if p, err := PlatformOf(self); err != nil || p != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("this program is for %q, %v", p, err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := PlatformOf(script); err == nil || !strings.Contains(err.Error(), "OS/ARCH="+script) {
		t.Errorf("a script: %v", err)
	}
	pack := func(dir string, builds ...Build) error {
		_, err := Pack(dir, "acme", "1.0.0", []int{1}, builds)
		return err
	}
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if err := pack(dir, Build{Platform: "linux/amd64", Binary: script}); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(one)
	if err != nil || len(entries) != 2 {
		t.Fatalf("got %v, %v", entries, err)
	}
	for _, e := range entries {
		a, err := os.ReadFile(filepath.Join(one, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(two, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if string(a) != string(b) {
			t.Errorf("%s differs from one time to the next", e.Name())
		}
	}
	for want, err := range map[string]error{
		"a version is released once": pack(one, Build{Platform: "linux/amd64", Binary: script}),
		"is a second program":        pack(t.TempDir(), Build{Platform: "linux/amd64", Binary: script}, Build{Platform: "linux/amd64", Binary: self}),
		"its name is taken":          pack(t.TempDir(), Build{Platform: "linux/amd64", Binary: script, Extra: []string{filepath.Join(t.TempDir(), "hutch-backend-acme")}}),
		"no such file":               pack(t.TempDir(), Build{Platform: "linux/amd64", Binary: script + "2"}),
		"is not a regular file":      pack(t.TempDir(), Build{Platform: "linux/amd64", Binary: t.TempDir()}),
		"it names no archive":        pack(t.TempDir()),
		`"linux" is no platform`:     pack(t.TempDir(), Build{Platform: "linux", Binary: script}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// FuzzParse checks that what is taken can be written and is the same when it is read again.
func FuzzParse(f *testing.F) {
	raw, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"format":"hutch.release/v1"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := Parse(raw)
		if err != nil {
			return
		}
		out, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.Encode(); err != nil {
			t.Fatal(err)
		}
	})
}
