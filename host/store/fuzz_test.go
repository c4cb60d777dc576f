package store

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// FuzzSandboxRecord gives the same bytes to everything that reads a sandbox's own files, or the name of a temporary
// one.
func FuzzSandboxRecord(f *testing.F) {
	s, err := Open(Options{Home: filepath.Join(f.TempDir(), "home")})
	if err != nil {
		f.Fatal(err)
	}
	const id = "261121-034512-c3k7q2"
	dir := s.paths.Sandbox(id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		f.Fatal(err)
	}
	for _, state := range []SandboxState{SandboxCreating, SandboxReady, SandboxRemoving, SandboxDamaged, "x"} {
		f.Add([]byte(`{"schema":"` + SandboxSchema + `","id":"` + id + `","name":"web","state":"` + string(state) + `","ends_with":{"pid":-1}}`))
	}
	for _, text := range []string{`{"schema":"` + SandboxSchema + `","id":"../x","name":"../x","state":"ready"}`, `{"nonce":"x","input":[{"path":"../x"}],"value":{}}`, `null`, ".x" + tempMark + "1.2.3.4", "hutch-" + tempMark} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{sandboxFile, sandboxPrivateFile} {
			if err := root.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		i, err := s.readSandbox(id)
		if err != nil || i.ID != id || i.State == SandboxDamaged != (i.Damage != "") || i.State != SandboxDamaged && CheckName(i.Name) != nil {
			t.Errorf("%+v %v", i, err)
		}
		_, refsErr := readInputRefs(root)
		var v any
		if err := (&SandboxRecord{record: record{dir: dir}}).ReadPrivate(&v); err == nil && refsErr != nil {
			t.Errorf("the private part is read, and its files are not: %v", refsErr)
		}
		if name := string(data); isTemp(name) {
			tempOwnerDead(name, time.Hour)
		}
	})
}
