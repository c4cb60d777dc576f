package guest

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/guestfiles"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// fill unpacks what the backend brings from its own host into a part of a sandbox in which no command has run yet.
func (b box) fill(ctx context.Context, part wire.Part, r io.Reader) error {
	unlock, err := b.lock(unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	dir := map[wire.Part]string{wire.PartWorkspace: b.workspace(), wire.PartInput: b.state("input")}[part]
	if dir == "" {
		return contract.Errorf(contract.ReasonConfig, "there is no part %q of a sandbox", part)
	}
	return guestfiles.Fill(ctx, dir, b.user.uid, b.user.gid, r)
}

// snapshot remembers what the workspace looks like, before any command has seen it.
func (b box) snapshot(ctx context.Context) error {
	unlock, err := b.lock(unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	return guestfiles.SaveBase(ctx, b.workspace(), b.state("base"))
}

// sync has the sandbox survive a power cut: without it the guest's kernel keeps for half a minute what was written, and
// a VM that is stopped by force meanwhile boots without the sandbox, or with empty files in it.
func (b box) sync() error {
	unlock, err := b.lock(unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	var done unix.Stat_t
	for _, dir := range []string{b.state(""), b.workspace()} {
		if err := syncOnce(dir, &done); err != nil {
			return fmt.Errorf("write %s to the disk: %w", dir, err)
		}
	}
	return nil
}

// syncOnce writes the file system of dir to its disk, unless it is the one of done, and notes it there.
func syncOnce(dir string, done *unix.Stat_t) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Dev == done.Dev {
		return err
	}
	*done = st
	return unix.Syncfs(int(f.Fd()))
}

// changes compares the workspace with what it was. A sandbox without a snapshot had nothing in it to change.
func (b box) changes(ctx context.Context) ([]remote.Change, error) {
	unlock, err := b.lock(unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return guestfiles.Changes(ctx, b.workspace(), b.state("base"))
}
