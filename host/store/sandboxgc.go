package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// FinishSandboxes removes persistent sandboxes that were half made or half removed, and those whose process is gone
// ([SandboxInfo.EndsWith]), unless another process is at it. It is the part of [Store.GC] that any command can do.
func (s *Store) FinishSandboxes(ctx context.Context, destroy func(ctx context.Context, i Intent) error) ([]GCItem, error) {
	c := &collector{store: s, o: GCOptions{Destroy: destroy}, now: s.now()}
	err := c.persistent(ctx)
	return c.items, err
}

// persistent ends what was begun with persistent sandboxes and what nobody goes on with: a process that makes or removes one holds
// its lock alone. A sandbox that is there is never touched, nor one whose record cannot be read.
func (c *collector) persistent(ctx context.Context) error {
	list, err := c.store.Sandboxes()
	if err != nil {
		return err
	}
	var errs []error
	for _, info := range list {
		if ctx.Err() != nil {
			break
		}
		if info.State == SandboxCreating || info.State == SandboxRemoving {
			errs = append(errs, c.finishSandbox(ctx, info.ID))
		}
	}
	return errors.Join(errs...)
}

// finishSandbox removes one sandbox that was half made or half removed.
func (c *collector) finishSandbox(ctx context.Context, id string) error {
	r, err := c.store.OpenSandbox(ctx, id, true, 0)
	if errors.Is(err, ErrInUse) || errors.Is(err, ErrNoSandbox) {
		return nil // somebody is at it, or done
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	info := r.Info()
	if info.State != SandboxCreating && info.State != SandboxRemoving {
		return nil
	}
	what := Intent{ID: id, Backend: info.Backend, Binary: info.Binary, BinarySHA256: info.BinarySHA256, Owner: info.Owner, Home: info.Home, Handle: info.Handle}
	intent, err := c.store.Intent(id)
	switch {
	case err == nil:
		what = intent.Intent // it has the handle while the record has none
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	c.do(GCItem{Kind: GCSandbox, Name: id, Path: r.Dir()}, func() error {
		if len(what.Handle) > 0 {
			if c.o.Destroy == nil {
				return fmt.Errorf("backend %s is needed to destroy it", what.Backend)
			}
			if err := c.o.Destroy(ctx, what); err != nil {
				return fmt.Errorf("backend %s: %w", what.Backend, err)
			}
		}
		if err := r.Forget(); err != nil {
			return err
		}
		if intent != nil {
			return intent.Done()
		}
		return nil
	})
	return nil
}

// recorded says whether a persistent sandbox's record speaks for what an intent announced, and what it says.
func (c *collector) recorded(r *IntentRecord) (bool, SandboxState) {
	if !c.hasRecord(r.ID) {
		return false, ""
	}
	info, err := c.store.readSandbox(r.ID)
	return err == nil, info.State
}

// hasRecord says whether there is the record of a persistent sandbox, readable or not.
func (c *collector) hasRecord(id string) bool {
	if !isRunID(id) {
		return false
	}
	fi, err := os.Lstat(c.store.paths.Sandbox(id))
	return err == nil && fi.IsDir()
}

// lost destroys what backends have, made for this store, that nothing in it speaks of.
func (c *collector) lost(ctx context.Context) error {
	if c.o.Find == nil || c.o.Destroy == nil {
		return nil
	}
	// Asked before the records are read, so that a sandbox which begins meanwhile is not taken for lost.
	found, ferr := c.o.Find(ctx)
	intents, err := c.store.Intents()
	if err != nil {
		return ferr // said before; without knowing all intents nothing here can be called lost
	}
	known := map[string]bool{}
	for _, r := range intents {
		known[r.ID] = true
	}
	for _, i := range found {
		if ctx.Err() != nil {
			break
		}
		if known[i.ID] || c.hasRecord(i.ID) || !isSandboxID(i.ID) {
			continue
		}
		c.do(GCItem{Kind: GCSandbox, Name: i.ID}, func() error {
			if err := c.o.Destroy(ctx, i); err != nil {
				return fmt.Errorf("backend %s: %w", i.Backend, err)
			}
			return removeAll(c.store.paths.SandboxState(i.ID))
		})
	}
	return ferr
}
