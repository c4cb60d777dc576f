package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// The modes of a tree's entries, as git writes them.
const (
	modeFile = "100644"
	modeExec = "100755"
	modeLink = "120000"
	modeGit  = "160000"
	modeTree = "040000"
	modeNone = "000000"
)

// rules are those of a path: git carries any bytes but NUL, and so does hutch.
var pathRules = safepath.Rules{MaxLen: 4096, AnyBytes: true}

// entry is one path that a commit adds, changes or removes.
type entry struct {
	path   string
	was    string // mode before
	mode   string
	object string
}

// check refuses what must not become part of the user's repository under any circumstances. Whether a good path is one
// that the user wants is another question, which [Checked.Findings] answers.
func (e entry) check() error {
	if e.mode == modeNone {
		return nil
	}
	if err := pathRules.Check(e.path); err != nil {
		var bad *safepath.Error
		if errors.As(err, &bad) {
			return fmt.Errorf("the path %s %s", review.Quote(e.path), bad.Reason)
		}
		return err
	}
	if judge.GitPath(e.path) {
		return fmt.Errorf("the path %s would lie in a git repository's own files", review.Quote(e.path))
	}
	switch e.mode {
	case modeFile, modeExec:
		if safepath.Fold(path.Base(e.path)) == ".gitmodules" {
			return errors.New("it changes .gitmodules: submodules are not taken from a sandbox")
		}
		return nil
	case modeLink:
		switch safepath.Fold(path.Base(e.path)) {
		case ".gitmodules", ".gitattributes", ".gitignore", ".mailmap":
			return fmt.Errorf("%s is a symbolic link, and git reads it", review.Quote(e.path))
		}
		return nil
	case modeGit:
		return fmt.Errorf("%s is a submodule: submodules are not taken from a sandbox", review.Quote(e.path))
	}
	return fmt.Errorf("%s has the mode %q, which no file has", review.Quote(e.path), e.mode)
}

// node is what a mode of a tree's entry stands for.
func node(mode string) judge.Node {
	switch mode {
	case modeFile:
		return judge.Node{There: true, Mode: 0o644}
	case modeExec:
		return judge.Node{There: true, Mode: 0o755}
	case modeLink:
		return judge.Node{There: true, Mode: fs.ModeSymlink | 0o777}
	case modeTree, modeGit:
		return judge.Node{There: true, Mode: fs.ModeDir | 0o755}
	}
	return judge.Node{}
}

// parseRaw takes one entry of `git diff-tree -r -z --raw` apart: ":OLDMODE MODE OLD NEW STATUS".
func parseRaw(s string) (e entry, err error) {
	f := strings.Split(strings.TrimPrefix(s, ":"), " ")
	if len(f) != 5 || !strings.HasPrefix(s, ":") || !isHex(f[3]) {
		return e, fmt.Errorf("git lists a change as %q", s)
	}
	return entry{was: f[0], mode: f[1], object: f[3]}, nil
}
