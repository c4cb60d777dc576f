package run

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// checkStore refuses directories in which commands could write to what hutch keeps: its configuration, the backends
// that it starts, and its records. The files of shared projects and the home directories of agents are for commands. It
// also refuses those with the socket of `hutch serve`, dir, when it exists: one can connect to a socket in a directory
// that is read-only, but not to one below an overlay.
func checkStore(d *runfile.Definition, p store.Paths, dir string) (ds diag.Diagnostics) {
	if _, err := os.Lstat(dir); err != nil {
		dir = ""
	}
	checkSocket := func(path, source string) {
		if source = resolved(source); dir != "" && (contains(source, resolved(dir)) || contains(resolved(dir), source)) {
			ds = append(ds, d.Diagnose(path, fmt.Sprintf("commands could see %s, where hutch serve listens", dir), "",
				"name a directory that does not have it inside"))
		}
	}
	check := func(path, source string) {
		source = resolved(source)
		for _, kept := range []string{p.Data, p.Config, p.State, p.Cache} {
			kept = resolved(kept)
			inside := contains(kept, source) && !contains(resolved(p.Projects()), source) &&
				!contains(resolved(p.Agents()), source)
			if contains(source, kept) || inside {
				ds = append(ds,
					d.Diagnose(path,
						fmt.Sprintf("commands could write to %s, where hutch keeps its configuration, backends and records", kept), "",
						"name a directory that does not have it inside, let HUTCH_HOME name another one for hutch, or do not let "+
							"commands write there"))
				return
			}
		}
	}
	if w := d.Workspace; w != nil && w.Mode == string(sdk.WorkspaceShared) {
		check("workspace.source", w.Source)
	}
	if w := d.Workspace; w != nil && w.Source != "" && (w.Mode == string(sdk.WorkspaceShared) ||
		w.Mode == string(sdk.WorkspaceReadOnly)) && len(ds) == 0 {
		checkSocket("workspace.source", w.Source)
	}
	for _, m := range d.Mounts {
		n := len(ds)
		if m.Mode == runfile.MountWritable {
			check(fmt.Sprintf("mount[%q].source", m.Target), m.Source)
		}
		if len(ds) == n {
			checkSocket(fmt.Sprintf("mount[%q].source", m.Target), m.Source)
		}
	}
	return ds
}

// resolved is an absolute path without links, as far as it exists.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// contains reports whether path is dir or lies below it.
func contains(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
