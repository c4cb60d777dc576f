package review

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzJournal sees to it that a journal which is taken names nothing outside its project and ledger.
func FuzzJournal(f *testing.F) {
	for _, s := range []string{
		`"id":"a","project":"/p","steps":[{"path":"a/b","old":{"type":"file","blob":-1},"new":{"link":"\"\\xff\""},"base":{"none":true}}]`,
		`"undoes":".."`, `"undoes":"."`, `"undoes":"a/b"`, `"steps":[null]`, `"steps":[{"path":"../x"}]`, `"steps":[{"path":"\"..\\x2fx\""}]`, `"steps":[{"path":""}]`,
	} {
		f.Add([]byte(`{"schema":"` + journalSchema + `",` + s + `}`))
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
			if !localPath(string(s.Path)) {
				t.Errorf("the path %q", s.Path)
			}
		}
		again, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		same, err := parseJournal(again)
		if d := cmp.Diff(j, same, cmp.AllowUnexported(step{})); err != nil || d != "" {
			t.Errorf("%v %s", err, d)
		}
	})
}
