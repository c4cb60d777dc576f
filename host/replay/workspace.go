package replay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
)

// Workspace says what became of the host's directory since the first run.
type Workspace struct {
	Source string `json:"source,omitempty"` // "" for an empty directory of the sandbox
	Mode   string `json:"mode,omitempty"`
	// Untouched says that nothing in it changed since the run began, contents and names and permissions; a shared
	// workspace was written to by the run itself.
	Untouched bool `json:"untouched"`
	// Touched are paths that did change, the first few of Count.
	Touched []string `json:"touched,omitempty"`
	Count   int      `json:"touched_count,omitempty"`
	// Partly says that there are more paths than were looked at.
	Partly bool `json:"partly,omitempty"`
}

// Bounds of the look at a workspace.
const (
	mostLooked = 500_000 // paths
	mostNamed  = 5
)

var errEnough = errors.New("enough")

// workspace looks at the directory that the run had. A program can set the time of a file's contents and not the one of
// its last change, which is what is compared with the begin of the run.
func (r *Replay) workspace(ctx context.Context, d *runfile.Definition, o Options) error {
	for _, m := range d.Mounts {
		if m.Mode == runfile.MountWritable && !o.Shared {
			return r.refuse("--shared allows it", "its mount %s is writable: what the run writes would land in %s at once", m.Target, m.Source)
		}
	}
	w := d.Workspace
	if w == nil {
		r.place = Workspace{Untouched: true}
		return nil
	}
	r.place = Workspace{Source: w.Source, Mode: w.Mode, Untouched: true}
	if st, err := os.Stat(w.Source); err != nil || !st.IsDir() {
		return r.refuse("put it back, or run the run file again with hutch run", "its workspace %s is not there any more", w.Source)
	}
	if w.Mode == string(sdk.WorkspaceShared) && !o.Shared {
		return r.refuse("--shared allows it", "its workspace %s is shared: what the run writes would land in that directory at once", w.Source)
	}
	looked := 0
	err := filepath.WalkDir(w.Source, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if looked++; looked > mostLooked {
			r.place.Partly = true
			return errEnough
		}
		var at time.Time
		if err == nil {
			var fi fs.FileInfo
			if fi, err = d.Info(); err == nil {
				at = time.Unix(fi.Sys().(*syscall.Stat_t).Ctim.Unix())
			}
		}
		if err == nil && at.Before(r.was.Started) {
			return nil
		}
		r.place.Untouched = false
		if r.place.Count++; len(r.place.Touched) < mostNamed {
			rel, rerr := filepath.Rel(w.Source, path)
			if rerr != nil {
				return rerr
			}
			r.place.Touched = append(r.place.Touched, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return nil
}
