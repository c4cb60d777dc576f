// Package gobuild builds programs of this module for tests.
package gobuild

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds a package of this module into the file out, with further flags of go build, and calls [Sources].
func Build(out, pkg string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"build", "-o", out}, flags...), pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, said)
	}
	return Sources()
}

// Sources has go test run the tests of this package again when a source of a program has changed. go test keeps a result
// while the test binary and the directories that it has read are the same, and the sources of what a test builds are in
// neither. It counts while tests run: TestMain is too early.
func Sources() error {
	root, err := os.Getwd()
	for err == nil {
		if _, err = os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			return errors.New("there is no go.mod above this directory")
		}
		root, err = filepath.Dir(root), nil
	}
	for _, dir := range []string{"cmd", "host", "plugins", "sdk"} {
		if err == nil {
			err = filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		}
	}
	return err
}
