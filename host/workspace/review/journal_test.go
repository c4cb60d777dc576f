package review

import (
	"bytes"
	"encoding/gob"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

func encoded(t testing.TB, j *journal) []byte {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(j); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FuzzJournal sees to it that a journal which is taken names nothing outside its project and ledger.
func FuzzJournal(f *testing.F) {
	file := safefile.Stat{Mode: 0o644, Size: 3, Ino: 7}
	for _, j := range []*journal{
		{ID: "a", Project: "/p", Steps: []*step{{
			Path: "a/b", Base: &overlay.Entry{}, Old: state{Node: Node{Type: File, Stat: file}, Blob: -1},
			New: state{Node: Node{Type: Symlink, Stat: safefile.Stat{Link: "\xff"}}},
		}}},
		{Undoes: ".."}, {Undoes: "."}, {Undoes: "a/b"}, {Steps: []*step{{Path: "../x"}}}, {Steps: []*step{{}}},
	} {
		j.Schema = journalSchema
		f.Add(encoded(f, j))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := parseJournal(data)
		if err != nil {
			return
		}
		if j.Undoes == "." || j.Undoes == ".." || strings.Contains(j.Undoes, "/") {
			t.Errorf("it undoes %q", j.Undoes)
		}
		for _, s := range j.Steps {
			if !safefile.Local(s.Path) {
				t.Errorf("the path %q", s.Path)
			}
		}
		same, err := parseJournal(encoded(t, j))
		if d := cmp.Diff(j, same, cmp.AllowUnexported(step{})); err != nil || d != "" {
			t.Errorf("%v %s", err, d)
		}
	})
}
