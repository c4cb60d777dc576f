package overlay

import (
	"errors"
	"io/fs"
	"os"
)

// OpenWork lets the owner of a layer read the directory that the kernel keeps in its work directory, at work/work, and
// closes to everybody at each mount: else an ordinary user cannot copy the layer (cp -a). The kernel itself works there
// with the rights of who mounted. A layer without that directory, or with one of another user, is left alone.
func OpenWork(layer string) error {
	dir, err := os.OpenRoot(layer)
	if err == nil {
		defer dir.Close()
		err = dir.Chmod("work/work", 0o700)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
