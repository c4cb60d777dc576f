package bundle

import (
	"bufio"
	"bytes"
	"context"
	"strings"
	"testing"
)

func FuzzReadHeader(f *testing.F) {
	oid := strings.Repeat("a", 40)
	for _, s := range []string{
		"# v2 git bundle\n" + oid + " HEAD\n\nPACK", "# v3 git bundle\n@object-format=sha256\n-" + oid + oid[:24] + " x\n\n", "# v2 git bundle\n-" + oid + "\n" + oid + " -x\n\n",
		"# v4 git bundle\n\n", "# v2 git bundle\n@object-format=sha1\n\n", "", "# v2 git bundle",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := ReadHeader(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		if n > int64(len(b)) {
			t.Fatalf("it read %d of %d bytes", n, len(b))
		}
		for _, r := range h.Refs {
			if len(r.Object) != hexLen(h.Format) || !isHex(r.Object) || strings.Contains(r.Name, "\n") {
				t.Fatalf("%+v", r)
			}
		}
		// What was read is read again from how it is written.
		again, m, err := ReadHeader(bufio.NewReader(strings.NewReader(h.String())))
		if err != nil || m != int64(len(h.String())) || len(again.Refs) != len(h.Refs) || len(again.Prerequisites) != len(h.Prerequisites) || again.Format != h.Format {
			t.Fatalf("%+v %+v %v", h, again, err)
		}
	})
}

func FuzzScanPack(f *testing.F) {
	b := blob("hello\n")
	f.Add(pack(b, tree(treeEntry{"100644", "x", b.name()})))
	f.Add(pack())
	f.Add([]byte("PACK\x00\x00\x00\x02\xff\xff\xff\xff"))
	f.Add(seal(append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"), append(entryHead(6, 4), append([]byte{0x81, 0x01}, deflate([]byte{6, 8, 1, 'x'})...)...)...)))
	f.Fuzz(func(t *testing.T, b []byte) {
		caps := Caps{Objects: 100, Object: 1 << 16, Total: 1 << 18}
		p, err := ScanPack(context.Background(), bytes.NewReader(b), "sha1", caps)
		if p.Bytes > caps.Total {
			t.Fatalf("it counted %d bytes, more than %d (%v)", p.Bytes, caps.Total, err)
		}
		if err == nil && !bytes.Equal(b, seal(append([]byte(nil), b[:len(b)-20]...))) {
			t.Fatal("a pack with a wrong checksum passed")
		}
	})
}

func FuzzReadRaw(f *testing.F) {
	oid := strings.Repeat("a", 40)
	for _, s := range []string{":100644 100755 " + oid + " " + oid + " M\x00a b\x00", ":000000 160000 " + oid + " " + oid + " A\x00../x\x00", ":\x00\x00", "x", ":1 2 3 g M\x00a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		const most = 3
		n := 0
		err := readRaw(strings.NewReader(s), most, func(e entry) error {
			if n++; !isHex(e.object) || strings.Contains(e.path, "\x00") {
				t.Fatalf("%+v", e)
			}
			return nil
		})
		if n > most || err == nil && n != strings.Count(s, "\x00")/2 {
			t.Fatalf("%d changes of %q, %v", n, s, err)
		}
	})
}
