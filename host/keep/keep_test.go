package keep

import (
	"bytes"
	"testing"
)

func TestKeep(t *testing.T) {
	head, tail := Head{Max: 5}, Tail{Max: 5}
	var all, passed bytes.Buffer
	tail.Copy = &all
	limit := Limit{W: &passed, Max: 5}
	for _, part := range []string{"ab", "cd", "ef"} {
		for _, w := range []interface{ Write([]byte) (int, error) }{&head, &tail} {
			if n, err := w.Write([]byte(part)); n != 2 || err != nil {
				t.Errorf("%T: %d %v", w, n, err)
			}
		}
		if _, err := limit.Write([]byte(part)); (err != nil) != (part == "ef") || limit.Over != (err != nil) {
			t.Errorf("%s: %v, over %v", part, err, limit.Over)
		}
	}
	if b, dropped := tail.Bytes(); string(b) != "bcdef" || !dropped || all.String() != "abcdef" {
		t.Errorf("the end is %q, dropped %v, of %q", b, dropped, &all)
	}
	if head.String() != "abcde" || passed.String() != "abcd" {
		t.Errorf("the beginning is %q, %q was passed on", head.String(), &passed)
	}
}
