package install

import (
	"crypto/rand"
	"testing"

	"aead.dev/minisign"

	"github.com/hutch-run/hutch/sdk/plaintext"
)

// FuzzForeign gives the same bytes to everything that reads a source or a signature of somebody else.
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
	})
}
