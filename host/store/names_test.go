package store

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	isLang := func(s string) bool { return isDepsName(s, 64) }
	for _, tt := range []struct {
		what      string
		is        func(string) bool
		good, bad []string
	}{
		{
			"run id", isRunID,
			[]string{"261121-034512-c3k7q2", "000000-000000-000000", "999999-999999-zzzzzz"},
			[]string{"", "261121-034512-c3k7q", "261121-034512-c3k7q22", "261121-034512-c3k7qi", "261121-034512-c3k7qO",
				"2611210034512-c3k7q2", "261121-0345120c3k7q2", "26112a-034512-c3k7q2", "../../-../../-......", "261121-034512-c3k7q2\n"},
		},
		{
			"sandbox id", isSandboxID,
			[]string{"a", "-", "261121-034512-c3k7q2", long(64)},
			[]string{"", long(65), "A", "a.b", "a/b", "a\n", "ä", "..", "a\x00"},
		},
		{
			"language", isLang,
			[]string{"a", "python", "3.12", "a..b", "0_-.", long(64)},
			[]string{"", long(65), ".", "..", ".a", "-a", "_a", "A", "a/b", "a b", "a\n", "é"},
		},
	} {
		for _, s := range tt.good {
			if !tt.is(s) {
				t.Errorf("%s %q is refused", tt.what, s)
			}
		}
		for _, s := range tt.bad {
			if tt.is(s) {
				t.Errorf("%s %q is taken", tt.what, s)
			}
		}
	}
}
