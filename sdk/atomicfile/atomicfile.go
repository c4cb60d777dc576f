// Package atomicfile replaces files as a whole or not at all.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write puts a file with the data and the permissions at path, in place of what is there. A reader finds the old file
// or the new one, also when the process was killed; sync makes that hold when the machine loses its power. A process
// that was killed may leave a file beside path whose name ends with ".new".
func Write(path string, data []byte, perm fs.FileMode, sync bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.new")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Chmod(perm), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
