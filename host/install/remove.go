package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/store"
)

// Remove removes all versions of a backend that were installed, and takes it out of the user's lock file. It returns
// how many versions there were, and refuses while a persistent sandbox was made by one of them.
func Remove(s *store.Store, name string) (int, error) {
	if err := backend.CheckName(name); err != nil {
		return 0, err
	}
	paths := s.Paths()
	dir := filepath.Join(paths.Installed(), name)
	versions, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("no backend %q was installed by hutch init or hutch backend install", name)
	}
	if err != nil {
		return 0, err
	}
	boxes, err := s.Sandboxes()
	if err != nil {
		return 0, err
	}
	for _, b := range boxes {
		if real, err := filepath.EvalSymlinks(dir); err == nil && strings.HasPrefix(b.Binary, real+string(filepath.Separator)) {
			return 0, fmt.Errorf("the sandbox %s was made by it; hutch rm %s removes that", b.Name, b.Name)
		}
	}
	f, err := lockfile.ReadFile(paths.InstalledLock())
	if err == nil && f.Find(name) != nil {
		f.Remove(name)
		err = f.WriteFile(paths.InstalledLock())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	return len(versions), os.RemoveAll(dir)
}
