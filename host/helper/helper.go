// Package helper finds hutch-agent, the program that is linked with the clients of models and registries and with the
// server of the Model Context Protocol. They are kept out of hutch because they would slow each of its starts. It
// imports nothing of ours.
package helper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Name is the file name of the program, in ../libexec/hutch beside hutch.
const Name = "hutch-agent"

// Find returns the paths of the hutch that is running and of the hutch-agent that was installed with it. The error
// wraps [fs.ErrNotExist] if hutch-agent is not installed.
func Find() (hutch, agent string, err error) {
	exe, err := os.Executable()
	if err != nil {
		return "", "", err
	}
	if hutch, err = filepath.EvalSymlinks(exe); err != nil {
		return "", "", err
	}
	agent = filepath.Join(filepath.Dir(hutch), "..", "libexec", "hutch", Name)
	switch _, err = os.Stat(agent); {
	case errors.Is(err, fs.ErrNotExist):
		return "", "", fmt.Errorf("%s is not installed: %s: %w; install hutch again, with its libexec directory",
			Name, agent, fs.ErrNotExist)
	case err != nil:
		return "", "", err
	}
	return hutch, agent, nil
}
