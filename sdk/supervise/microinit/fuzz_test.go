package microinit

import (
	"encoding/binary"
	"testing"
)

// FuzzParseReport takes what has the size of a report, and nothing else.
func FuzzParseReport(f *testing.F) {
	for _, s := range []string{"", "\x01\x00\x00\x00\x00\x09\x00\x00", "\x07\x00\x00\x00\x00\x00\x00", "123456789"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, value, err := ParseReport(data)
		if (err == nil) != (len(data) == ReportSize) {
			t.Fatalf("%d bytes: %v", len(data), err)
		}
		if again := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(kind)), value); err == nil && string(again) != string(data) {
			t.Errorf("%q is read as %d %d", data, kind, value)
		}
	})
}
