package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/atomicfile"
)

// placesDir has a file for each place in which this user has made sandboxes.
func placesDir() (string, error) {
	data := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", sdk.Errorf(sdk.ReasonMissing, "this user has no home directory: %w", err).WithFix("set HOME")
		}
		data = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(data, "hutch", "kubernetes"), nil
}

// remember notes that there are sandboxes in a place.
func (p place) remember() error {
	dir, err := placesDir()
	if err != nil {
		return err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	file := filepath.Join(dir, hex.EncodeToString(sum[:8])+".json")
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(file, data, 0o600, false)
}

// rememberedPlaces are those that remember has noted.
func rememberedPlaces() (places []place, err error) {
	dir, err := placesDir()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var p place
		if data, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil && json.Unmarshal(data, &p) == nil {
			places = append(places, p)
		}
	}
	return places, nil
}
