package preset

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Program is where a program is on this machine, and what it needs to run.
type Program struct {
	Path string   // absolute, without links
	Dirs []string // directories of this machine that it needs, absolute; what lies below /usr is in every sandbox
	Bin  string   // directory of its interpreter; "" when it has none, or that is below /usr

	installed bool // by the dependencies of the sandbox, which Path is in
}

// NotFoundError says that a program is not in PATH.
type NotFoundError struct{ Program string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("%s is not installed", e.Program) }

// Find finds a program in PATH, follows its links, and adds the directories that it needs: the tree of packages that it
// belongs to (node_modules, or a virtual environment of Python), or the directory that it lies in, and that of the
// interpreter which its first line names.
func Find(program string) (*Program, error) {
	path, err := resolve(program)
	if err != nil {
		return nil, err
	}
	p := &Program{Path: path}
	if _, err := p.need(tree(path)); err != nil {
		return nil, err
	}
	interpreter, err := interpreterOf(path)
	if err != nil || interpreter == "" {
		return p, err
	}
	at, err := resolve(interpreter)
	if err != nil {
		return nil, fmt.Errorf("%s runs by %s: %w", program, interpreter, err)
	}
	dir := filepath.Dir(at)
	if strings.HasPrefix(filepath.Base(at), "python") { // its library lies beside its bin
		dir = filepath.Dir(dir)
	}
	if needed, err := p.need(dir); needed {
		p.Bin = filepath.Dir(at)
	} else if err != nil {
		return nil, err
	}
	return p, nil
}

// Add adds the directories that another program needs.
func (p *Program) Add(other *Program) {
	for _, dir := range other.Dirs {
		if !slices.Contains(p.Dirs, dir) {
			p.Dirs = append(p.Dirs, dir)
		}
	}
}

func resolve(program string) (string, error) {
	found, err := exec.LookPath(program)
	if errors.Is(err, exec.ErrNotFound) {
		return "", &NotFoundError{program}
	} else if err != nil {
		return "", err
	}
	if found, err = filepath.Abs(found); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(found)
}

// need adds a directory; false when every sandbox has it. The user's home directory is never shown.
func (p *Program) need(dir string) (bool, error) {
	if below(dir, "/usr") {
		return false, nil
	}
	if holdsHome(dir) {
		return false, fmt.Errorf("%s lies in %s, which the sandbox would see: move it into a directory below", p.Path, dir)
	}
	if !slices.Contains(p.Dirs, dir) {
		p.Dirs = append(p.Dirs, dir)
	}
	return true, nil
}

// CheckProject refuses a project that the user's home directory belongs to: the agent would read all of it.
func CheckProject(dir string) error {
	if holdsHome(dir) {
		return fmt.Errorf("%s has your home directory in it, which the agent would read: go to the directory of a project",
			dir)
	}
	return nil
}

// holdsHome reports whether dir is the user's home directory, or above it.
func holdsHome(dir string) bool {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	return dir == "/" || err == nil && below(home, dir)
}

// below reports whether path is dir, or below it.
func below(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// tree is the directory of all that belongs to the program at path.
func tree(path string) string {
	const modules = "/node_modules/"
	if i := strings.Index(path, modules); i >= 0 {
		return path[:i+len(modules)-1]
	}
	env := filepath.Dir(filepath.Dir(path))
	if _, err := os.Stat(filepath.Join(env, "pyvenv.cfg")); err == nil {
		return env // a virtual environment of Python
	}
	return filepath.Dir(path)
}

// interpreterOf reads the first line of a script; "" for a binary. A script that starts /usr/bin/env is run by what
// that starts.
func interpreterOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	words, script := strings.CutPrefix(line, "#!")
	if !script {
		return "", nil
	}
	fields := strings.Fields(words)
	if len(fields) > 0 && filepath.Base(fields[0]) == "env" {
		fields = slices.DeleteFunc(fields[1:], func(s string) bool {
			return strings.HasPrefix(s, "-") ||
				strings.Contains(s, "=")
		})
	}
	if len(fields) == 0 {
		return "", fmt.Errorf("%s: its first line names no interpreter", path)
	}
	return fields[0], nil
}
