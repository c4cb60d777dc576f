package review

import (
	"bytes"
	"unicode/utf8"
)

// UnifiedText is the difference between two texts as the hunks of a unified diff, escaped for a terminal where s says
// so. It is false when one of them is no text or is longer than what is compared line by line.
func UnifiedText(old, new []byte, s Style) (string, bool) {
	for _, b := range [][]byte{old, new} {
		if len(b) > maxText || isBinary(b) || !utf8.Valid(b) {
			return "", false
		}
	}
	var b bytes.Buffer
	for _, h := range diffText(old, new).hunks() {
		s.Hunk(&b, h)
	}
	return b.String(), true
}
