package install

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"testing"

	"aead.dev/minisign"

	"github.com/hutch-run/hutch/sdk/plaintext"
)

// FuzzForeign gives the same bytes to everything that reads a source, a signature or a zip of somebody else.
func FuzzForeign(f *testing.F) {
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	manifest := []byte("{}")
	for _, s := range []string{
		"example.com/a:1.2.3", "oci://localhost:5000/a", "https://u:p@example.com/{version}", "http://example.com/x", "./dir:v1.0.0", "a:b", "/x\x1b", "example.com/a@sha256:0",
		string(minisign.Sign(private, manifest)), "untrusted comment: x\nRWQ=\ntrusted comment: y\n",
	} {
		f.Add([]byte(s))
	}
	var z bytes.Buffer
	w := zip.NewWriter(&z)
	for _, name := range []string{"a", "d/", "../evil"} {
		if _, err := w.Create(name); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(z.Bytes())
	trust := Trust{Keys: map[string][]string{"example.com": {public.String()}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		text := string(data)
		if CheckSource(text) == nil && (len(text) > 1024 || !plaintext.IsLine(text)) {
			t.Errorf("the source %q is taken", text)
		}
		if source, version := SplitVersion(text); version != "" && source+":"+version != text && source+":v"+version != text || version == "" && source != text {
			t.Errorf("%q is split into %q and %q", text, source, version)
		}
		if by, _, err := trust.verify("example.com/a", append([]byte("other "), data...), data); by != "" || err == nil {
			t.Errorf("signed by %q", by)
		}
		if by, why, err := (Trust{}).verify("example.com/a", manifest, data); by != "" || err == nil && why == "" {
			t.Errorf("signed by %q without a key", by)
		}
		if len(data) > 4<<10 { // a zip holds up to a thousand times its size
			return
		}
		r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
			return
		}
		var out bytes.Buffer
		if zipToTar(r, &out) != nil {
			return
		}
		for n, in := 0, tar.NewReader(&out); ; n++ {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				if n != len(r.File) {
					t.Errorf("%d of %d entries", n, len(r.File))
				}
				return
			}
			if err != nil || h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir || h.Mode&^0o777 != 0 {
				t.Fatalf("%v: %+v", err, h)
			}
		}
	})
}
