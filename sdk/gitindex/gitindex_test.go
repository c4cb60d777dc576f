package gitindex

import (
	"strings"
	"testing"
)

// FuzzIndex reads indexes that nobody should have written.
func FuzzIndex(f *testing.F) {
	f.Add(uint32(2), []byte(strings.Repeat("\x00", 40)+strings.Repeat("x", 20)+"\x00\x04name\x00\x00\x00"), uint32(1))
	f.Add(uint32(4), []byte(strings.Repeat("\x00", 40)+strings.Repeat("x", 20)+"\x00\x04\x00name\x00"+strings.Repeat("\x00", 40)+strings.Repeat("x", 20)+"\x00\x04\x04other\x00TREE\x00\x00\x00\x00"), uint32(2))
	f.Add(uint32(3), []byte(strings.Repeat("\x00", 40)+strings.Repeat("x", 20)+"\x40\x04\x00\x00name\x00link\x00\x00\x00\x00"), uint32(1))
	f.Fuzz(func(t *testing.T, version uint32, data []byte, count uint32) {
		x := &Index{left: data, count: count, version: version, name: 20}
		n := 0
		for x.Next() {
			if n++; n > len(data)/62 {
				t.Fatal("it has more entries than fit into it")
			}
		}
	})
}
