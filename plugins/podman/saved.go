package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/atomicfile"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// saved is what another process needs to go on with a sandbox, or to recreate its container. It lies in the sandbox's
// own directory and not in the handle, for the configuration may hold secrets.
type saved struct {
	sdk.Spec
	Overlay       string // the strategy in use
	DefaultMemory int64  // bytes, chosen when the sandbox was made
}

func (d dirs) saved() string { return filepath.Join(d.base(), "sandbox.json") }

// save writes down what the sandbox is, whole or not at all.
func (s *sandbox) save() error {
	k := saved{s.spec, s.over, s.held.DefaultMemory}
	k.Config = configOf(&s.spec)
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dirs.base(), 0o700); err != nil {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	return atomicfile.Write(s.dirs.saved(), data, 0o600, false)
}

// fork gives s a copy of what another persistent sandbox has written, for the overlay strategy that this one uses.
func (s *sandbox) fork(ctx context.Context, from sdk.Handle) error {
	old, err := readHandle(from)
	if err != nil {
		return err
	}
	source := dirs{cmp.Or(from.StateDir, old.Dir)}
	k, err := loadSaved(source)
	if err != nil {
		return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone: %w", from.ID, err)
	}
	s.over = k.Overlay
	if err := os.Mkdir(s.dirs.layer(), 0o700); err != nil {
		return err
	}
	who, err := identify(&s.spec, s.podman.rootless, from.ID)
	if err != nil {
		return err
	}
	for from, to := range map[string]string{source.upper(): s.dirs.upper(), source.output(): s.dirs.output()} {
		if err := overlay.Copy(ctx, from, to, who.shiftTo(s.who)); err != nil {
			return err
		}
	}
	return nil
}

// loadSaved reads what save wrote.
func loadSaved(d dirs) (*saved, error) {
	data, err := os.ReadFile(d.saved())
	if err != nil {
		return nil, err
	}
	k, err := parseSaved(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.saved(), err)
	}
	return k, nil
}

func parseSaved(data []byte) (*saved, error) {
	k := &saved{Spec: sdk.Spec{Config: &Config{}}}
	if err := json.Unmarshal(data, k); err != nil {
		return nil, err
	}
	if k.Config == nil || !slices.Contains(overlays, k.Overlay) {
		return nil, fmt.Errorf("it has no configuration, or the unknown overlay %q", k.Overlay)
	}
	return k, nil
}
