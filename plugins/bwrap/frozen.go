package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/hostids"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// What a sandbox has written becomes a frozen layer when it is forked, unless it is one already: a fork of a fork in
// which nothing ran shares the layer. Frozen layers lie beside the state directories of their users. Each user has, in
// layer/frozen, a link NN-ID for each of them, in their order from the top.

// maxFrozen bounds the frozen layers of one sandbox, each of which is a fork of a fork: the options of a mount fit into
// a page.
const maxFrozen = 64

// frozenIDs are the frozen layers of the sandbox in dir, from the top.
func frozenIDs(dir string) (ids []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, "layer", "frozen"))
	if err != nil {
		if os.IsNotExist(err) {
			err = nil
		}
		return nil, err
	}
	for _, e := range entries {
		_, id, _ := strings.Cut(e.Name(), "-")
		ids = append(ids, id)
	}
	return ids, nil
}

// frozenLayers are the directories of the frozen layers of the sandbox in dir, from the top.
func frozenLayers(dir string) ([]string, error) {
	ids, err := frozenIDs(dir)
	for i, id := range ids {
		ids[i] = overlay.FrozenAt(filepath.Dir(dir), id)
	}
	return ids, err
}

// sweepFrozen removes the frozen layers beside dir that nobody uses any more.
func sweepFrozen(dir string) error {
	return overlay.SweepFrozen(filepath.Dir(dir), func(path string) error {
		return removeBelow(filepath.Dir(path), filepath.Base(path))
	})
}

// freeze lays s over what the sandbox in dir has written. Where that is all in frozen layers they are shared.
func (s *sandbox) freeze(ctx context.Context, dir string) error {
	layers := filepath.Dir(s.dir)
	ids, err := frozenIDs(dir)
	if err != nil {
		return err
	}
	if len(ids) > 0 && filepath.Dir(dir) != layers {
		return sdk.Errorf(sdk.ReasonConfig, "a fork lies beside what it is a fork of: %s is not in %s", s.dir,
			filepath.Dir(dir))
	}
	upper := filepath.Join(dir, "layer", "upper")
	written, err := os.ReadDir(upper)
	if err != nil {
		return err
	}
	n := len(ids)
	if len(written) > 0 {
		n++
	}
	if n > maxFrozen {
		return sdk.Errorf(sdk.ReasonUnsupported, "it is a fork of a fork %d times over, and more layers cannot be laid over "+
			"each other", maxFrozen).WithFix("apply its changes, and create a sandbox")
	}
	use := func(i int, id string) string {
		return filepath.Join(s.dir, "layer", "frozen", fmt.Sprintf("%02d-%s", i, id))
	}
	if n > 0 {
		if err := os.Mkdir(filepath.Dir(use(0, "")), 0o755); err != nil {
			return err
		}
	}
	if n > len(ids) {
		if err := overlay.Freeze(ctx, upper, layers, s.id, use(0, s.id)); err != nil {
			return err
		}
	}
	for i, id := range ids {
		if err := overlay.UseFrozen(layers, id, use(n-len(ids)+i, id)); err != nil {
			return err
		}
	}
	return overlay.CopyEmpty(upper, filepath.Join(s.dir, "layer", "upper"))
}

// fork gives s what another persistent sandbox has written: a frozen copy of its layer, and a copy of its output. The
// files of both belong to the same user: the owner of the workspace, whatever ids the processes have.
func (s *sandbox) fork(ctx context.Context, from sdk.Handle) error {
	old, err := readHandle(from)
	if err != nil {
		return err
	}
	dir := cmp.Or(from.StateDir, old.Dir)
	if old.Kept == nil || !kept(dir) {
		return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", from.ID)
	}
	layer, source := filepath.Join(s.dir, "layer"), filepath.Join(dir, "layer")
	var owner syscall.Stat_t
	if err := syscall.Stat(source, &owner); err != nil {
		return fmt.Errorf("look at the layer of %s: %w", from.ID, err)
	}
	for _, d := range []string{layer, filepath.Join(layer, "work")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("make the sandbox's layer: %w", err)
		}
		if hostids.Root() {
			if err := os.Chown(d, int(owner.Uid), int(owner.Gid)); err != nil {
				return fmt.Errorf("make the sandbox's layer: %w", err)
			}
		}
	}
	if s.spec.Workspace.Source == "" {
		err = overlay.Copy(ctx, filepath.Join(source, "upper"), filepath.Join(layer, "upper"), nil)
	} else {
		err = s.freeze(ctx, dir)
	}
	if err != nil {
		return err
	}
	// Last: it says that the layer is whole.
	return overlay.Copy(ctx, filepath.Join(source, "output"), filepath.Join(layer, "output"), nil)
}

// layersOn says where the workspace of the sandbox in dir lies on the host. With a disk limit upper is "": what the
// sandbox writes is in memory that only the holder sees.
func layersOn(ws *sdk.Workspace, dir, upper string) (*sdk.Layers, error) {
	switch {
	case ws.Source != "" && ws.Mode != sdk.WorkspacePrivate:
		return &sdk.Layers{Lower: ws.Source}, nil
	case upper == "":
		return nil, nil
	}
	frozen, err := frozenLayers(dir)
	return &sdk.Layers{Lower: ws.Source, Upper: upper, Frozen: frozen}, err
}

// frozenMounts gives the sandbox's user the frozen layers, and returns them as lower layers of a mount.
func (l *layout) frozenMounts(dir string) (lower string, err error) {
	frozen, err := frozenLayers(dir)
	for i, f := range frozen {
		at := fmt.Sprintf("/frozen/%d", i)
		if err == nil {
			err = l.own(f, at, true)
		}
		lower += at + ":"
	}
	return lower, err
}
