package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/atomicfile"
)

// registry is where every process of this user finds every sandbox: a plain
// process has no place of its own, as a container has its engine.
func registry() string { return filepath.Join(os.TempDir(), fmt.Sprintf("hutch-fake-%d", os.Getuid())) }

func entry(id string) string { return filepath.Join(registry(), filepath.Base(id)+".json") }

// register writes an entry, as a whole or not at all.
func register(h sdk.Handle) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	for {
		if err := os.MkdirAll(registry(), 0o700); err != nil {
			return err
		}
		err = atomicfile.Write(entry(h.ID), b, 0o600, false)
		if !errors.Is(err, fs.ErrNotExist) { // else another process removed the last entry meanwhile
			return err
		}
	}
}

func lookup(id string) (h sdk.Handle, ok bool) {
	b, err := os.ReadFile(entry(id))
	if err != nil {
		return h, false
	}
	return h, json.Unmarshal(b, &h) == nil && h.ID == id
}

func unregister(id string) error {
	if err := os.Remove(entry(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(registry()) // fails while there are others
	return nil
}
