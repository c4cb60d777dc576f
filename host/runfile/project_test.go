package runfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWorkspaceOfAProject(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.hcl")
	load := func(block string, o Options) (*Definition, string) {
		t.Helper()
		src := "run \"r\" {\n  backend \"bwrap\" {}\n  command = [\"true\"]\n  workspace { " + block + " }\n}\n"
		src = strings.ReplaceAll(src, "; ", "\n")
		src = strings.ReplaceAll(src, "workspace { ", "workspace {\n")
		src = strings.ReplaceAll(src, " }\n}", "\n}\n}")
		if err := os.WriteFile(file, []byte(src), 0o644); err != nil {
			t.Fatal(err)
		}
		c, ds := Load([]string{file}, o)
		if ds.HasErrors() {
			return nil, ds.Error()
		}
		return c.Runs()[0], ""
	}
	find := func(name string) (string, error) {
		if name == "shop" {
			return "/projects/shop/files", nil
		}
		return "", errors.New("there is no project " + name)
	}
	d, err := load(`project = "shop"; mode = "shared"`, Options{Project: find})
	if err != "" || d.Workspace.Source != "/projects/shop/files" || d.Workspace.Project != "shop" || d.Workspace.Mode != "shared" {
		t.Errorf("%v %s", d, err)
	}
	for block, want := range map[string]string{
		`project = "barn"`:               "there is no project barn",
		`project = "shop"; source = "."`: "both source and project",
	} {
		if _, err := load(block, Options{Project: find}); !strings.Contains(err, want) {
			t.Errorf("%s: %q", block, err)
		}
	}
	if _, err := load(`project = "barn"`, Options{Project: find, AllowMissing: true}); err != "" {
		t.Errorf("validate needs no project: %s", err)
	}
	if _, err := load(`project = "shop"`, Options{}); !strings.Contains(err, "no shared projects here") {
		t.Errorf("%q", err)
	}
}
