package limits

import (
	"strings"
	"testing"
)

func TestGroupIDs(t *testing.T) {
	for _, id := range []string{"a", "Z", "0", "a.b_c-d", "bwrap-261121-034512-c3k7q2.", strings.Repeat("a", 128)} {
		if err := checkID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", ".", "..", ".a", "-a", "_a", "a/b", "a b", "a\n", "a\x00", "é", strings.Repeat("a", 129)} {
		if checkID(id) == nil {
			t.Errorf("%q is taken", id)
		}
	}
}
