package model

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Program is the file name of the program that talks to providers, in ../libexec/hutch beside hutch. The providers' libraries
// are linked into it alone.
const Program = "hutch-model"

// Open starts the program that talks to c's provider, for as long as the client is open. It dies with the process that started
// it. Canceling ctx afterwards changes nothing; Close ends it.
func Open(ctx context.Context, c Config) (Client, error) {
	c = c.WithDefaults()
	if err := c.Check(); err != nil {
		return nil, err
	}
	program, err := find()
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s cannot be started by this version of hutch", program)
}

// find is the program that belongs to the hutch which is running.
func find() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(exe), "..", "libexec", "hutch", Program)
	if _, err := os.Stat(path); err != nil {
		if os.IsNotExist(err) {
			err = fs.ErrNotExist
		}
		return "", fmt.Errorf("models need %s, which comes with hutch: %s: %w", Program, path, err)
	}
	return path, nil
}
