package clients

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"
)

func TestEdit(t *testing.T) {
	entry := command([]string{"hutch", "mcp"})
	const ours = `"hutch": {
      "command": "hutch",
      "args": [
        "mcp"
      ]
    }`
	for name, c := range map[string]struct{ before, after, removed string }{
		"nothing": {"{}\n", "{\n  \"servers\": {\n    " + ours + "\n  }\n}\n", "{\n  \"servers\": {\n  }\n}\n"},
		"others": {
			"{\n  // mine\n  \"a\": [1,2],\n  \"servers\": {\n    \"x\": {\"command\": \"y\"} // why\n  }\n}\n",
			"{\n  // mine\n  \"a\": [1,2],\n  \"servers\": {\n    \"x\": {\"command\": \"y\"}, // why\n    " + ours + "\n  }\n}\n",
			"{\n  // mine\n  \"a\": [1,2],\n  \"servers\": {\n    \"x\": {\"command\": \"y\"} // why\n\n  }\n}\n",
		},
		"a comma at the end": {
			"{\n  \"servers\": {\n    \"x\": 1,\n  },\n}\n",
			"{\n  \"servers\": {\n    \"x\": 1,\n    " + ours + ",\n  },\n}\n",
			"{\n  \"servers\": {\n    \"x\": 1,\n  },\n}\n",
		},
		"no servers": {"{\n  \"a\": 1\n}\n", "{\n  \"a\": 1,\n  \"servers\": {\n    " + ours + "\n  }\n}\n", "{\n  \"a\": 1,\n  \"servers\": {\n  }\n}\n"},
		"another entry": {
			"{\"servers\": {\"hutch\": {\"command\": \"old\"}, \"x\": 1}}",
			"{\"servers\": {" + ours + ", \"x\": 1}}",
			"{\"servers\": { \"x\": 1}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := edit([]byte(c.before), "servers", "hutch", entry)
			if diff := cmp.Diff(c.after, string(after)); diff != "" || err != nil {
				t.Fatal(err, diff)
			}
			again, err := edit(after, "servers", "hutch", entry)
			if diff := cmp.Diff(c.after, string(again)); diff != "" || err != nil {
				t.Error(err, diff)
			}
			removed, err := edit(after, "servers", "hutch", nil)
			if diff := cmp.Diff(c.removed, string(removed)); diff != "" || err != nil {
				t.Error(err, diff)
			}
		})
	}
	for _, bad := range []string{"", "[]", `{"servers": 1}`, `{"a":`} {
		if out, err := edit([]byte(bad), "servers", "hutch", entry); err == nil {
			t.Errorf("%q became %q", bad, out)
		}
	}
}

// FuzzEdit checks that an edited file can be read, has the entry, and is the same after a second edit.
func FuzzEdit(f *testing.F) {
	f.Add([]byte("{\n  // c\n  \"servers\": {\"x\": 1,},\n}"))
	f.Add([]byte("{ /* a */ \"b\" /* c */: 1 // d\n}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		after, err := edit(text, "servers", "hutch", command([]string{"hutch"}))
		if err != nil {
			return
		}
		v, err := hujson.Parse(after)
		if err != nil || v.Find("/servers/hutch/command") == nil {
			t.Fatalf("%q became %q: %v", text, after, err)
		}
		if out, err := edit(after, "servers", "hutch", nil); err != nil {
			t.Fatal(err)
		} else if v, err := hujson.Parse(out); err != nil || v.Find("/servers/hutch") != nil && bytes.Count(after, []byte("hutch")) < 3 {
			t.Fatalf("%q became %q: %v", after, out, err)
		}
		if again, err := edit(after, "servers", "hutch", command([]string{"hutch"})); err != nil || string(again) != string(after) {
			t.Fatalf("%q became %q, %v", after, again, err)
		}
	})
}

func TestFiles(t *testing.T) {
	for _, c := range All {
		if c.Program != "" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			dir := t.TempDir()
			argv := []string{"hutch", "mcp", "--workspace", "."}
			ch, err := c.Plan(dir, "hutch", argv)
			if err != nil || ch.Text == "" {
				t.Fatalf("%+v, %v", ch, err)
			}
			if err := ch.Do(t.Context()); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, c.Files[len(c.Files)-1])
			if _, err := os.Stat(file); err != nil {
				t.Error(err)
			}
			if ch, err := c.Plan(dir, "hutch", argv); err != nil || ch.Text != "" {
				t.Errorf("again: %+v, %v", ch, err)
			}
			if ch, err = c.Plan(dir, "hutch", nil); err != nil || ch.Text == "" {
				t.Errorf("remove: %+v, %v", ch, err)
			}
		})
	}
}
