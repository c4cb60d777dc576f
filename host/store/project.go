package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Project is a shared project directory.
type Project struct {
	Name      string   `json:"name"`
	Dir       string   `json:"dir"`       // of its files, absolute
	Bytes     int64    `json:"bytes"`     // disk space that they take
	Sandboxes []string `json:"sandboxes"` // names of those that have it as their workspace; never null
}

// ErrNoProject says that there is no such project.
var ErrNoProject = errors.New("no such project")

// CreateProject makes an empty project and returns the directory of its files.
func (s *Store) CreateProject(name string) (dir string, err error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	names, err := s.lockNames()
	if err != nil {
		return "", err
	}
	defer names.Close()
	if err := os.Mkdir(s.paths.Projects(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", diskError("make", s.paths.Projects(), err)
	}
	err = os.Mkdir(s.paths.Project(name), 0o700)
	if errors.Is(err, fs.ErrExist) {
		if _, err := os.Lstat(s.paths.ProjectFiles(name)); err == nil {
			return "", fmt.Errorf("there is a project %q already", name)
		}
		err = nil // half a project, of a process that died here
	}
	if err != nil {
		return "", diskError("make", s.paths.Project(name), err)
	}
	dir = s.paths.ProjectFiles(name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", diskError("make", dir, err)
	}
	return dir, nil
}

// ProjectDir returns the directory of a project's files; [ErrNoProject] when there is no such project.
func (s *Store) ProjectDir(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	dir := s.paths.ProjectFiles(name)
	if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() {
		return "", fmt.Errorf("%w: %q", ErrNoProject, name)
	}
	return dir, nil
}

// Projects lists all projects by name.
func (s *Store) Projects() ([]Project, error) {
	entries, err := entriesOf(s.paths.Projects())
	if err != nil {
		return nil, err
	}
	boxes, err := s.Sandboxes()
	if err != nil {
		return nil, err
	}
	var list []Project
	for _, e := range entries {
		dir, err := s.ProjectDir(e.Name())
		if err != nil {
			continue
		}
		p := Project{Name: e.Name(), Dir: dir, Bytes: treeSize(dir), Sandboxes: []string{}}
		for _, b := range boxes {
			if b.Project == p.Name {
				p.Sandboxes = append(p.Sandboxes, b.Name)
			}
		}
		list = append(list, p)
	}
	return list, nil
}

// RemoveProject removes a project with all its files. It refuses while a sandbox has it as its workspace.
func (s *Store) RemoveProject(name string) error {
	if _, err := s.ProjectDir(name); err != nil {
		return err
	}
	trash := tempPath(s.paths.Project(name))
	if err := s.takeProject(name, trash); err != nil {
		return err
	}
	if err := removeAll(trash); err != nil {
		return diskError("remove", trash, err)
	}
	return nil
}

// takeProject takes a project's name away, which no sandbox can be made on afterwards.
func (s *Store) takeProject(name, trash string) error {
	names, err := s.lockNames() // so that no sandbox is begun meanwhile
	if err != nil {
		return err
	}
	defer names.Close()
	boxes, err := s.Sandboxes()
	if err != nil {
		return err
	}
	var users []string
	for _, b := range boxes {
		if b.Project == name {
			users = append(users, b.Name)
		}
	}
	if len(users) > 0 {
		return fmt.Errorf("project %s: %w: it is the workspace of %s", name, ErrInUse, strings.Join(users, ", "))
	}
	if err := os.Rename(s.paths.Project(name), trash); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %q", ErrNoProject, name)
		}
		return diskError("remove", filepath.Dir(trash), err)
	}
	return nil
}
