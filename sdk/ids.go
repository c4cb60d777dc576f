package sdk

import "strings"

// The patterns are written out and not compiled: regular expressions would cost
// every start of every backend a tenth of a millisecond.

// isName reports whether s is a letter and then up to most-1 letters, digits and
// characters of extra, all in lower case.
func isName(s string, most int, extra string) bool {
	return s != "" && s[0] >= 'a' && s[0] <= 'z' && len(s) <= most && onlyLower(s, extra)
}

// isSandboxID reports whether s is 1 to 64 of a-z, 0-9 and '-'.
func isSandboxID(s string) bool { return s != "" && len(s) <= 64 && onlyLower(s, "-") }

func onlyLower(s, extra string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return true
}
