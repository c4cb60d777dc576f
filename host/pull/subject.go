package pull

import (
	"archive/tar"
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/push"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/sdk"
)

// Subject is what was pulled from a sandbox, as a review looks at it: the difference between the commit that was sent
// and the ref that holds what came back, against the work tree as it is. No backend is started. The caller adds the
// base that the push wrote.
func Subject(ctx context.Context, info store.SandboxInfo) (s review.Subject, err error) {
	repo, err := openRepo(ctx, info)
	if err != nil {
		return s, err
	}
	commit, err := repo.Commit(ctx, push.Ref(info.Name))
	if err != nil {
		return s, &push.Refusal{Summary: fmt.Sprintf("nothing was pulled from %s yet", info.Name), Err: err,
			Hints: []string{fmt.Sprintf("hutch pull %s brings its commits", info.Name)}}
	}
	return review.Subject{
		Name: info.Name, ID: info.ID, Project: repo.Dir, Ready: sdk.Ready{Workspace: info.Push.Clone},
		Remote: &commits{repo: repo, from: info.Push.Base, to: commit},
	}, nil
}

// commits is a [review.Remote] whose workspace is a commit of the user's repository.
type commits struct {
	repo     *git.Repo
	from, to string
}

// change is one line of git's list.
type change struct {
	sdk.Change
	object string
}

// Changes implements [review.Remote].
func (c *commits) Changes(ctx context.Context) ([]sdk.Change, error) {
	list, err := c.list(ctx)
	out := make([]sdk.Change, len(list))
	for i, l := range list {
		out[i] = l.Change
	}
	return out, err
}

// list is what the commits changed and the work tree does not have, directories included.
func (c *commits) list(ctx context.Context) ([]change, error) {
	out, err := c.repo.Run(ctx, "diff", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--ignore-submodules", c.to, "--")
	if err != nil || out == "" {
		return nil, err
	}
	missing := map[string]bool{} // and the directories of it
	for _, p := range strings.Split(strings.TrimSuffix(out, "\x00"), "\x00") {
		for ; p != "." && !missing[p]; p = path.Dir(p) {
			missing[p] = true
		}
	}
	all, err := c.changed(ctx)
	return slices.DeleteFunc(all, func(l change) bool { return !missing[l.Path] }), err
}

// changed is what the commits changed.
func (c *commits) changed(ctx context.Context) ([]change, error) {
	out, err := c.repo.Run(ctx, "diff-tree", "-r", "-t", "-z", "--raw", "--no-renames", "--full-index", c.from, c.to)
	if err != nil || out == "" {
		return nil, err
	}
	f := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	var list []change
	for ; len(f) >= 2; f = f[2:] {
		w := strings.Fields(strings.TrimPrefix(f[0], ":"))
		if len(w) != 5 {
			return nil, fmt.Errorf("git lists a change as %q", f[0])
		}
		l := change{Change: sdk.Change{Path: f[1], OldMode: modeOf(w[0]), NewMode: modeOf(w[1])}, object: w[3]}
		oldType, newType := l.OldMode.Type(), l.NewMode.Type()
		switch {
		case w[0] == "000000":
			l.Kind = sdk.ChangeAdded
		case w[1] == "000000":
			l.Kind = sdk.ChangeDeleted
		case oldType != newType:
			l.Kind = sdk.ChangeType
		case newType == fs.ModeDir:
			continue // what changed in it is listed
		case newType == fs.ModeSymlink:
			l.Kind = sdk.ChangeSymlink
		case w[2] == w[3]:
			l.Kind = sdk.ChangeMode
		default:
			l.Kind = sdk.ChangeModified
		}
		list = append(list, l)
	}
	return list, nil
}

// modeOf is the mode that git checks out for what a tree calls so; 0 for nothing.
func modeOf(s string) fs.FileMode {
	switch s {
	case "100755":
		return 0o755
	case "120000":
		return fs.ModeSymlink | 0o777
	case "040000":
		return fs.ModeDir | 0o755
	case "000000":
		return 0
	}
	return 0o644
}

// Get implements [review.Remote]: a tar stream with what changed, and nothing else. Attributes of the tree mean nothing
// here, as they would to git archive.
func (c *commits) Get(ctx context.Context, _ string, _ sdk.Format, w io.Writer) error {
	list, err := c.list(ctx)
	if err != nil {
		return err
	}
	var ask strings.Builder
	for _, l := range list {
		if l.Kind != sdk.ChangeDeleted && !l.NewMode.IsDir() {
			ask.WriteString(l.object + "\n")
		}
	}
	r, pw := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := c.repo.Do(ctx, git.Call{Stdin: strings.NewReader(ask.String()), Stdout: pw}, "cat-file", "--batch")
		pw.CloseWithError(err)
		ended <- err
	}()
	err = pack(bufio.NewReader(r), list, w)
	r.CloseWithError(io.ErrClosedPipe)
	if gerr := <-ended; err == nil {
		err = gerr
	}
	return err
}

// pack writes the changed paths as tar, with the contents that cat-file --batch gives in the order in which it was
// asked.
func pack(objects *bufio.Reader, list []change, w io.Writer) error {
	t := tar.NewWriter(w)
	for _, l := range list {
		if l.Kind == sdk.ChangeDeleted {
			continue
		}
		h := &tar.Header{Name: l.Path, Mode: int64(l.NewMode.Perm()), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg,
			Format: tar.FormatPAX}
		if l.NewMode.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, l.Path+"/"
			if err := t.WriteHeader(h); err != nil {
				return err
			}
			continue
		}
		head, err := objects.ReadString('\n') // "NAME blob SIZE"
		if err != nil {
			return err
		}
		f := strings.Fields(head)
		if len(f) != 3 || f[0] != l.object {
			return fmt.Errorf("git has no content of %s: %q", review.Quote(l.Path), head)
		}
		if h.Size, err = strconv.ParseInt(f[2], 10, 64); err != nil {
			return err
		}
		content := io.LimitReader(objects, h.Size)
		if l.NewMode.Type() == fs.ModeSymlink {
			target, err := io.ReadAll(content)
			if err != nil {
				return err
			}
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, string(target), 0
			content = strings.NewReader("")
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(t, content); err != nil {
			return err
		}
		if _, err := objects.Discard(1); err != nil { // the line break behind each
			return err
		}
	}
	return t.Close()
}
