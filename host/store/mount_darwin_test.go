package store

import (
	"errors"
	"os/exec"
)

func inMountNamespace(*exec.Cmd) error { return errors.New("there are no mount namespaces on macOS") }

func mountTmpfs(string, int) (func(), error) { return nil, errors.New("there is no tmpfs on macOS") }
