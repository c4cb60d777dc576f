package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

// TestCheckStore: commands can write neither to a directory that hutch keeps something in, nor to one that has it inside.
func TestCheckStore(t *testing.T) {
	dir := t.TempDir()
	kept := func(name string) string {
		path := filepath.Join(dir, "user", name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p := store.Paths{Data: kept("data"), Config: kept("config"), State: kept("state"), Cache: kept("cache")}
	kept("project")
	kept("data/projects/shop/files")
	kept("data/runs")
	if err := os.Symlink(filepath.Join(dir, "user"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for source, refused := range map[string]bool{
		"/": true, dir: true, dir + "/user": true, dir + "/link": true, dir + "/user/config": true, dir + "/link/data/runs": true, dir + "/user/cache/deps": true,
		dir + "/user/project": false, p.ProjectFiles("shop"): false, p.Agents() + "/claude": false, dir + "/user/data-of-mine": false,
	} {
		for mode, writable := range map[string]bool{"shared": true, "private": false, "readonly": false} {
			d := &runfile.Definition{Workspace: &runfile.Workspace{Source: source, Mode: mode}}
			if ds := checkStore(d, p, ""); (len(ds) == 1) != (refused && writable) {
				t.Errorf("workspace %s, mode %s: %v", source, mode, ds)
			}
		}
		for mode, writable := range map[string]bool{runfile.MountWritable: true, runfile.MountReadOnly: false} {
			d := &runfile.Definition{Mounts: []runfile.Mount{{Target: "/data", Source: source, Mode: mode}}}
			if ds := checkStore(d, p, ""); (len(ds) == 1) != (refused && writable) {
				t.Errorf("mount %s, mode %s: %v", source, mode, ds)
			}
		}
	}
}

// TestCheckStoreSocket: no directory with the socket of `hutch serve` is shown, unless below an overlay.
func TestCheckStoreSocket(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "run", "serve")
	for _, path := range []string{socket, filepath.Join(dir, "other")} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for source, refused := range map[string]bool{"/": true, dir: true, dir + "/run": true, socket: true, dir + "/other": false} {
		for _, mode := range []string{"readonly", "private"} {
			d := &runfile.Definition{Workspace: &runfile.Workspace{Source: source, Mode: mode}}
			if ds := checkStore(d, store.Paths{}, socket); (len(ds) == 1) != (refused && mode != "private") {
				t.Errorf("workspace %s, mode %s: %v", source, mode, ds)
			}
		}
		d := &runfile.Definition{Mounts: []runfile.Mount{{Target: "/data", Source: source, Mode: runfile.MountReadOnly}}}
		if ds := checkStore(d, store.Paths{}, socket); (len(ds) == 1) != refused {
			t.Errorf("mount %s: %v", source, ds)
		}
		if ds := checkStore(d, store.Paths{}, socket+"2"); len(ds) != 0 {
			t.Errorf("mount %s where nothing was ever served: %v", source, ds)
		}
	}
}
