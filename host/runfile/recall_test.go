package runfile

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/sdk"
)

// recorded is what a record would have of d. Its files are those of d.
func recorded(t *testing.T, d *Definition) Recorded {
	t.Helper()
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	r := Recorded{Definition: raw, Config: json.RawMessage(`{}`), Open: func(path string) (io.ReadCloser, error) {
		for i := range d.Files {
			if d.Files[i].Path == path && !d.Files[i].Sensitive {
				return d.Files[i].Open()
			}
		}
		return nil, fs.ErrNotExist
	}}
	if len(d.Backends) > 0 {
		r.Backend = d.Backends[0].Name
	}
	return r
}

// plain is the JSON of a definition as far as a record gives it back.
func plain(t *testing.T, d *Definition) (m map[string]any) {
	t.Helper()
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	delete(m, "range")    // of the run file
	delete(m, "backends") // the one that was chosen
	return m
}

// TestRecallGivesBackWhatWasRecorded, for every run of every good file: once what was sensitive is filled in from the
// file, it is the same definition, with the same files and the same secrets.
func TestRecallGivesBackWhatWasRecorded(t *testing.T) {
	names, err := filepath.Glob("testdata/good/*.hcl")
	if err != nil || len(names) == 0 {
		t.Fatalf("no good files: %v", err)
	}
	runs, lacking := 0, 0
	for _, name := range names {
		if strings.HasSuffix(name, autoHCL) {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		conf, diags := Load([]string{name}, fileOptions(src))
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		for _, d := range conf.Runs() {
			runs++
			t.Run(d.Instance, func(t *testing.T) {
				r, err := Recall(recorded(t, d))
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Missing) > 0 {
					lacking++
				}
				r.Fill(d)
				for _, m := range r.Missing {
					t.Errorf("%s is missing still", m.Path)
				}
				if diff := cmp.Diff(plain(t, d), plain(t, r.Definition)); diff != "" {
					t.Errorf("(-was +recalled)\n%s", diff)
				}
				if diff := cmp.Diff(d.Env, r.Env); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([][]string{d.Command, d.Args}, [][]string{r.Command, r.Args}); diff != "" {
					t.Error(diff)
				}
				if d.Limits != r.Limits {
					t.Errorf("limits %+v, were %+v", r.Limits, d.Limits)
				}
				for i := range d.Files {
					if was, is := content(t, &d.Files[i]), content(t, &r.Files[i]); was != is {
						t.Errorf("%s: %q, was %q", d.Files[i].Path, is, was)
					}
				}
				for i := range d.Home {
					if string(d.Home[i].Content) != string(r.Home[i].Content) || d.Home[i].Mode != r.Home[i].Mode && d.Home[i].Source == "" {
						t.Errorf("home %s: %+v, was %+v", d.Home[i].Path, r.Home[i], d.Home[i])
					}
				}
				if e := d.Expect; e != nil && e.Stdout != nil && len(e.Stdout.Matches) != len(r.Expect.Stdout.Matches) {
					t.Errorf("expect %+v, was %+v", r.Expect.Stdout, e.Stdout)
				}
			})
		}
	}
	if runs < 10 || lacking == 0 {
		t.Errorf("%d runs, of which %d lack something: that tests little", runs, lacking)
	}
}

func content(t *testing.T, f *File) string {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRecalledBackend: what the backend is given is what it was given, and what is sensitive of that is missing.
func TestRecalledBackend(t *testing.T) {
	d := &Definition{Name: "x", Instance: "x", Command: []string{"true"}, Backends: []*Backend{NewBackend("acme")}, Network: network.Network{Mode: sdk.NetworkNone}}
	rec := recorded(t, d)
	rec.Config = json.RawMessage(`{"image":"a","size":3}`)
	r, err := Recall(rec)
	if err != nil || len(r.Missing) > 0 {
		t.Fatalf("%+v %v", r, err)
	}
	c, diags := r.Backends[0].Decode(&sdk.Schema{})
	if diags.HasErrors() || string(c.Value) != `{"image":"a","size":3}` {
		t.Errorf("%+v %v", c, diags)
	}
	for _, config := range []string{`{"token":"(sensitive)"}`, ""} {
		rec.Config = nil
		if config != "" {
			rec.Config = json.RawMessage(config)
		}
		r, err = Recall(rec)
		if err != nil || len(r.Missing) != 1 || r.Missing[0].Path != `backend "acme"` {
			t.Fatalf("%q: %+v %v", config, r, err)
		}
		if r.Fill(d); len(r.Missing) > 0 || r.Backends[0] != d.Backends[0] {
			t.Errorf("%q: %+v", config, r)
		}
	}
}

// TestRecallRefuses what no definition is.
func TestRecallRefuses(t *testing.T) {
	for _, raw := range []string{
		"", "{}", "[]", `{"instance":"x"}`,
		`{"instance":"x","command":["a"],"limits":{"memory":"much"}}`,
		`{"instance":"x","command":["a"],"limits":{"timeout":"30"}}`,
		`{"instance":"x","command":["a"],"files":[{"path":"a","mode":"rw"}]}`,
		`{"instance":"x","command":["a"],"files":[{"path":"a","mode":"17777"}]}`,
		`{"instance":"x","command":["a"],"expect":{"stdout":{"matches":["("]}}}`,
		`{"instance":"x","command":["a"],"required_backends":[{"name":"b","version":"newest"}]}`,
	} {
		if r, err := Recall(Recorded{Definition: json.RawMessage(raw)}); err == nil {
			t.Errorf("%s: %+v", raw, r.Definition)
		}
	}
	r, err := Recall(Recorded{Definition: json.RawMessage(`{"instance":"x","command":["a"],"env":{"A":"(sensitive)","B":"b"},"stdin":"(sensitive)"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if r.SetEnv("B", "c") || !r.SetEnv("A", "given") || r.SetEnv("A", "again") || r.Env["A"] != "given" || r.Env["B"] != "b" {
		t.Errorf("%+v", r.Env)
	}
	if len(r.Missing) != 1 || r.Missing[0].Path != "stdin" {
		t.Errorf("%+v", r.Missing)
	}
	if diff := cmp.Diff([]string{"given"}, r.Secrets()); diff != "" {
		t.Error(diff)
	}
}

// FuzzRecall: no record makes it panic.
func FuzzRecall(f *testing.F) {
	f.Add([]byte(`{"run":"x","instance":"x","command":["(sensitive)"],"env":{"A":"(sensitive)"},"limits":{"memory":"1GiB"},"files":[{"path":"a","mode":"0644","sensitive":true}],"home":[{"path":"b"}],"expect":{"stdout":{"equals":"(sensitive)"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Recall(Recorded{Definition: raw, Backend: "acme"})
		if err != nil {
			return
		}
		r.Fill(&Definition{Env: map[string]string{}})
		if _, err := json.Marshal(r.Definition); err != nil {
			t.Error(err)
		}
	})
}
