package record

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/host/store"
)

// FuzzEvents reads any chain of events as a tree, as the steps of a run and as what a loop goes on from.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		`[{"type":"state","data":{"state":"code"}},{"type":"model.call","data":{"n":1,"milliseconds":9223372036854775807,"usage":{"input_tokens":-1}}},{"type":"attempt","data":{"n":1,"run":"x"}}]`,
		`[{"type":"attempt","data":{"n":-1}},{"type":"state","data":{}},{"type":"attempt"},{"type":"tool.call","data":{"call":-1},"files":[{"path":"../x"}]},{"type":"resume"},{"type":"end"}]`,
		`[{"type":"exec.start","data":{"argv":["a\n"]}},{"type":"exec.end","data":{"cause":"exited","exit_code":3}},{"type":"changes","data":{"counts":{"a":-1}}}]`,
	} {
		f.Add([]byte(s))
	}
	s, err := store.Open(store.Options{Home: filepath.Join(f.TempDir(), "home")})
	if err != nil {
		f.Fatal(err)
	}
	rec := &store.Record{Dir: f.TempDir()}
	f.Fuzz(func(t *testing.T, data []byte) {
		var events []store.Event
		if json.Unmarshal(data, &events) != nil {
			return
		}
		tree := &treeBuilder{store: s, rec: rec, root: &Node{}, listed: map[string]bool{}}
		read, readable := &reader{rec: rec, past: &Past{}}, true
		for _, e := range events {
			tree.event(e)
			readable = readable && read.event(e) == nil
		}
		tree.leave(nil)
		tree.steps(events)
		if _, err := json.Marshal(tree.root); err != nil {
			t.Error(err)
		}
		var walk func(*Node)
		walk = func(n *Node) {
			if n.Took != nil && *n.Took < 0 || len(n.Detail) > 2*(200+len("…"))+2 && n.Type == NodeTool {
				t.Errorf("%+v", n)
			}
			for _, c := range n.Children {
				walk(c)
			}
		}
		walk(tree.root)
	})
}
