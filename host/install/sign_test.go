package install

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"

	"github.com/hutch-run/hutch/host/release"
)

func keyPair(t *testing.T) (minisign.PublicKey, minisign.PrivateKey) {
	t.Helper()
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return public, private
}

// sign signs the manifest of a version, as `minisign -Sm` does.
func (w *world) sign(version string, key minisign.PrivateKey) {
	w.t.Helper()
	path := filepath.Join(w.dist, release.ManifestName("acme", version))
	w.write(release.SignatureName(path), string(minisign.Sign(key, []byte(w.program(path)))), 0o644)
}

func TestSignatures(t *testing.T) {
	public, private := keyPair(t)
	_, stranger := keyPair(t)
	id := fmt.Sprintf("%016X", public.ID())

	t.Run("warn", func(t *testing.T) {
		w := newWorld(t)
		w.release("1.0.0")
		if got := w.must(InitOptions{}, w.requires("./dist", "")); got.Signed != "" || len(w.notes) != 1 || !strings.Contains(w.notes[0], "it is not signed") {
			t.Errorf("got %+v and %v", got, w.notes)
		}
		w.sign("1.0.0", stranger)
		w.notes = nil
		if _, err := w.init(InitOptions{Upgrade: true}, w.requires("./dist", "")); err != nil || len(w.notes) != 1 || !strings.Contains(w.notes[0], "in your configuration has that ID") {
			t.Errorf("got %v and %v", err, w.notes)
		}
	})
	t.Run("required", func(t *testing.T) {
		w := newWorld(t)
		w.Trust = Trust{Required: true}
		w.release("1.0.0")
		w.refused("no trusted key has signed it: it is not signed", InitOptions{}, w.requires("./dist", ""))
		w.sign("1.0.0", private)
		w.refused("is signed by "+id+", and no key", InitOptions{}, w.requires("./dist", ""))
		w.Trust.Keys = map[string][]string{w.dist: {public.String()}}
		got := w.must(InitOptions{}, w.requires("./dist", ""))
		if got.Signed != id || !strings.Contains(string(w.lock()), `signed_by = "`+id+`"`) {
			t.Errorf("got %+v and\n%s", got, w.lock())
		}
		// Offline, it is looked at again.
		if err := os.RemoveAll(w.dist); err != nil {
			t.Fatal(err)
		}
		if got := w.must(InitOptions{Locked: true}, w.requires("./dist", "")); got.Fetched {
			t.Errorf("got %+v", got)
		}
		w.Trust.Keys = nil
		w.refused("no key for", InitOptions{Locked: true}, w.requires("./dist", ""))
	})
	t.Run("a key makes it required", func(t *testing.T) {
		w := newWorld(t)
		w.Trust.Keys = map[string][]string{w.project: {public.String()}}
		w.release("1.0.0")
		w.refused("it is not signed", InitOptions{}, w.requires("./dist", ""))
		w.sign("1.0.0", stranger)
		w.refused("no trusted key has signed it", InitOptions{}, w.requires("./dist", ""))
		w.sign("1.0.0", private)
		w.must(InitOptions{}, w.requires("./dist", ""))
	})
	t.Run("changed after it was signed", func(t *testing.T) {
		w := newWorld(t)
		w.Trust.Keys = map[string][]string{w.dist: {public.String()}}
		w.release("1.0.0")
		w.sign("1.0.0", private)
		path := filepath.Join(w.dist, release.ManifestName("acme", "1.0.0"))
		w.write(path, w.program(path)+" ", 0o644)
		w.refused("it was changed after it was signed", InitOptions{}, w.requires("./dist", ""))
		w.write(release.SignatureName(path), "untrusted comment: x\nnonsense\n", 0o644)
		w.refused("is not a minisign signature", InitOptions{}, w.requires("./dist", ""))
	})
	t.Run("the signature of another release", func(t *testing.T) {
		w := newWorld(t)
		w.Trust.Keys = map[string][]string{w.dist: {public.String()}}
		w.release("1.0.0")
		w.release("1.1.0")
		w.sign("1.0.0", private)
		w.sign("1.1.0", private)
		// The old release is given out as the new one, signature and all.
		for _, name := range []string{release.ManifestName("acme", "1.0.0"), release.SignatureName(release.ManifestName("acme", "1.0.0"))} {
			w.write(filepath.Join(w.dist, strings.Replace(name, "1.0.0", "1.1.0", 1)), w.program(filepath.Join(w.dist, name)), 0o644)
		}
		w.refused("gives as version 1.1.0 is version 1.0.0", InitOptions{}, w.requires("./dist", "1.1.0"))
	})
	t.Run("keys hold where they are meant to", func(t *testing.T) {
		trust := Trust{Keys: map[string][]string{"registry.example.com/acme": {"k"}, "https://example.com/a/": {"w"}}}
		for source, want := range map[string]int{
			"registry.example.com/acme": 1, "registry.example.com/acme/x": 1, "oci://registry.example.com/acme/x": 1,
			"registry.example.com/acmeevil": 0, "registry.example.com": 0, "https://example.com/a/b": 1, "https://example.com/ab": 0,
		} {
			if got := trust.forSource(source); len(got) != want {
				t.Errorf("%s: %v", source, got)
			}
		}
	})
	t.Run("no key", func(t *testing.T) {
		w := newWorld(t)
		w.Trust.Keys = map[string][]string{"x": {"not a key"}}
		w.release("1.0.0")
		w.refused("is no public key of minisign", InitOptions{}, w.requires("./dist", ""))
	})
}

func TestO3SignaturesAreRequiredAtRun(t *testing.T) {
	public, private := keyPair(t)
	w := newWorld(t)
	w.Platform = ""
	w.release("1.0.0")
	w.sign("1.0.0", private)
	got := w.must(InitOptions{}, w.requires("./dist", ""))
	edited := strings.Repeat("0", 64)
	hash, err := hashBinary(filepath.Dir(got.Path), "acme")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		trust  Trust
		source string
		sha256 string
		want   string // "" for trusted
	}{
		"nothing asked":              {source: "./dist", sha256: edited},
		"required, no key":           {Trust{Required: true}, "./dist", hash, "no trusted key has signed it"},
		"required, signed":           {Trust{Required: true, Keys: map[string][]string{w.dist: {public.String()}}}, "./dist", hash, ""},
		"a key makes it required":    {Trust{Keys: map[string][]string{w.dist: {public.String()}}}, "./dist", edited, "this one has " + edited},
		"edited program, lock too":   {Trust{Required: true, Keys: map[string][]string{w.dist: {public.String()}}}, "./dist", edited, "this one has " + edited},
		"a key of another source":    {Trust{Required: true, Keys: map[string][]string{"elsewhere": {public.String()}}}, "./dist", hash, "no key for"},
		"record, signed by any key":  {Trust{Required: true, Keys: map[string][]string{"elsewhere": {public.String()}}}, "", hash, ""},
		"record, edited":             {Trust{Required: true, Keys: map[string][]string{"elsewhere": {public.String()}}}, "", edited, "this one has"},
		"record, no key, not wanted": {Trust{}, "", edited, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.trust.CheckInstalled(Installed{Name: "acme", Program: got.Path, SHA256: tt.sha256, Source: tt.source, Dir: w.project})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("a file beside it is edited", func(t *testing.T) {
		w.write(filepath.Join(filepath.Dir(got.Path), "LICENSE"), "pay\n", 0o644)
		err := Trust{Required: true, Keys: map[string][]string{w.dist: {public.String()}}}.CheckInstalled(Installed{Name: "acme", Program: got.Path, SHA256: hash, Source: w.dist})
		if !errors.Is(err, ErrUnsigned) {
			t.Errorf("got %v", err)
		}
	})
}
