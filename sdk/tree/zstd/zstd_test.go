package zstd

import (
	"bytes"
	"io"
	"testing"

	"github.com/hutch-run/hutch/sdk/tree/internal/codec"
)

// TestMagic sees to it that package tree recognises what this package writes.
func TestMagic(t *testing.T) {
	c, ok := codec.Find(func(c codec.Codec) bool { return c.Name == "zstd" })
	if !ok {
		t.Fatal("not registered")
	}
	var b bytes.Buffer
	w, err := c.Writer(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "some text"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b.Bytes(), []byte(c.Magic)) {
		t.Errorf("a stream begins with %x, not %x", b.Bytes()[:4], c.Magic)
	}
	r, err := c.Reader(&b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if text, err := io.ReadAll(r); err != nil || string(text) != "some text" {
		t.Errorf("read %q, %v", text, err)
	}
}
