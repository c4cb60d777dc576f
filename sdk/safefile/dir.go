package safefile

import (
	"errors"
	"io/fs"
	"os"
)

// OpenRoot opens the directory name of root as its own root, like [os.Root.OpenRoot]: links are followed that stay
// inside. Where a FIFO stands, or was put in this moment, it fails, and does not wait until somebody writes to that.
func OpenRoot(root *os.Root, name string) (*os.Root, error) {
	dir, err := root.OpenRoot(name + "/.") // a name that is gone through is opened as nothing but a directory
	var at *fs.PathError
	if errors.As(err, &at) {
		at.Path = name
	}
	return dir, err
}
