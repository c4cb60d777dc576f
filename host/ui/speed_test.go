package ui

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// maxWeight is what a page may weigh with its style and its script, in bytes.
const maxWeight = 150 << 10

// TestWeight: a page of many files is no larger than one of a hundred, and leads to the others. The overview of 200
// sandboxes that all did something is as light.
func TestWeight(t *testing.T) {
	w := newWorld(t)
	id := w.create("box")
	w.sh(id, "i=0; while [ $i -lt 350 ]; do echo x > file$i; i=$((i+1)); done")
	page, fixed := w.see("/sandbox/"+id, "350 files", "Later files"), len(w.see("/style.css"))+len(w.see("/script.js"))
	if n := len(page) + fixed; n > maxWeight || strings.Count(page, `class="file"`) != maxFiles {
		t.Errorf("the page weighs %d bytes and has %d files", n, strings.Count(page, `class="file"`))
	}
	one := len(w.see("/", "350 paths", "Last run"))
	for _, name := range []string{"left", "right", "middle"} {
		w.sh(w.create(name), "echo x > file")
	}
	card := (len(w.see("/", "middle")) - one) / 3
	t.Logf("a card weighs %d bytes", card)
	if n := one + 199*card + fixed; n > maxWeight {
		t.Errorf("the overview of 200 sandboxes weighs %d bytes, %d for each", n, card)
	}
	seen := map[string]bool{}
	for _, from := range []int{0, 100, 200, 300} {
		page := w.see(fmt.Sprintf("/sandbox/%s?from=%d", id, from))
		for i := range 350 {
			if strings.Contains(page, `id="file-`+ref(fmt.Sprint("file", i))+`"`) {
				seen[fmt.Sprint(i)] = true
			}
		}
	}
	if len(seen) != 350 {
		t.Errorf("%d files of 350 can be reached", len(seen))
	}
	w.see("/sandbox/"+id+"?from=9999", "no more files", "Earlier files", "Apply all")
	w.see("/sandbox/"+id+"?find=nothing", "no file found")
	if page := w.see("/sandbox/"+id+"?find="+url.QueryEscape("file34"), "11 files found"); strings.Count(page, `class="file"`) != 11 {
		t.Error("not the files that were searched for")
	}
}
