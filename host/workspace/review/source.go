package review

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/piped"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

// source is the sandbox's side. Everything that comes from it is hostile and may change while it is read.
type source interface {
	// changes lists what differs from the project, in path order, and what was seen there if it was looked at. With
	// overlay.ErrTooMany or overlay.ErrUnreadable come the changes that were found.
	changes(ctx context.Context) ([]overlay.Difference, error)
	// look says what stands at a path of a change.
	look(path string) (Node, error)
	// copy writes the content of a file of at most max bytes to dst. It may be called concurrently.
	copy(ctx context.Context, dst io.Writer, path string, max int64) (safefile.Copied, error)
	close()
}

// layers is a source that lies in directories of this host.
type layers struct {
	lower     *os.Root
	upper     []*os.Root // and the frozen layers below it
	dirs      []*dir     // upper once more
	options   overlay.Options
	elsewhere bool // lower is not the project
}

func openLayers(l *sdk.Layers, project *dir, o overlay.Options) (_ *layers, err error) {
	s := &layers{options: o}
	s.options.Trusted = l.Trusted
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.lower, err = os.OpenRoot(l.Lower); err != nil {
		return nil, fmt.Errorf("open the project: %w", err)
	}
	for _, path := range l.Written() {
		root, err := os.OpenRoot(path)
		if err != nil {
			return nil, fmt.Errorf("open what the sandbox wrote: %w", err)
		}
		s.upper = append(s.upper, root)
		d, err := openDir(path)
		if err != nil {
			return nil, fmt.Errorf("open what the sandbox wrote: %w", err)
		}
		s.dirs = append(s.dirs, d)
	}
	s.options.Frozen = s.upper[1:]
	var lower, top unix.Stat_t
	f, err := s.lower.Open(".")
	if err != nil {
		return nil, fmt.Errorf("open the project: %w", err)
	}
	defer f.Close()
	if err := errors.Join(unix.Fstat(int(f.Fd()), &lower), unix.Fstat(project.top, &top)); err != nil {
		return nil, fmt.Errorf("look at the project: %w", err)
	}
	s.elsewhere = lower.Dev != top.Dev || lower.Ino != top.Ino
	return s, nil
}

func (s *layers) changes(ctx context.Context) ([]overlay.Difference, error) {
	list, err := overlay.Differences(ctx, s.lower, s.upper[0], s.options)
	for i := range list {
		list[i].Seen = list[i].Seen && !s.elsewhere
	}
	return list, err
}

// look finds a path that is among the changes: it shows what is in the first layer that has it.
func (s *layers) look(path string) (n Node, err error) {
	for _, d := range s.dirs {
		if n, err = d.look(path); err != nil || n.Type != Nothing {
			break
		}
	}
	return n, err
}

func (s *layers) copy(ctx context.Context, dst io.Writer, path string, max int64) (safefile.Copied, error) {
	last := len(s.upper) - 1
	for _, root := range s.upper[:last] {
		if _, err := root.Lstat(path); err == nil {
			return safefile.Copy(ctx, dst, root, path, max)
		}
	}
	return safefile.Copy(ctx, dst, s.upper[last], path, max)
}

func (s *layers) close() {
	for _, r := range append(s.upper, s.lower) {
		if r != nil {
			r.Close()
		}
	}
	for _, d := range s.dirs {
		d.close()
	}
}

// Remote is a sandbox whose workspace is no directory of this host.
type Remote interface {
	// Changes lists what differs in the workspace; see [sdk.ChangeLister].
	Changes(ctx context.Context) ([]sdk.Change, error)
	// Get writes what is at path inside the sandbox to w; see [sdk.Getter].
	Get(ctx context.Context, path string, format sdk.Format, w io.Writer) error
}

// remote is a source that is asked through the contract: for the list of changes, and then once for the whole workspace
// as a tar stream, of which what changed is kept on disk. All of it is as it was in that one stream.
type remote struct {
	box       Remote
	workspace string
	dir       string
	files     map[string]remoteFile
}

// remoteFile is what the stream had at a path.
type remoteFile struct {
	node Node
	at   string // file on disk; "" for what is no regular file or was too big
	left string // why the stream has a file without its content: it is too big
}

func openRemote(r Remote, workspace string) (source, error) {
	if workspace == "" {
		return nil, errors.New("the backend does not say where the workspace is")
	}
	dir, err := store.MkdirTemp("review")
	if err != nil {
		return nil, err
	}
	return &remote{box: r, workspace: workspace, dir: dir, files: map[string]remoteFile{}}, nil
}

func (s *remote) close() { os.RemoveAll(s.dir) }

func (s *remote) changes(ctx context.Context) ([]overlay.Difference, error) {
	list, err := s.box.Changes(ctx)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	var out []overlay.Difference
	for _, c := range list {
		if !safefile.Local(c.Path) {
			return nil, fmt.Errorf("the backend names the path %s", Quote(c.Path))
		}
		out = append(out, overlay.Difference{Change: c})
		wanted[c.Path] = c.Kind != overlay.Deleted
	}
	if len(out) > overlay.DefaultMaxEntries {
		return nil, fmt.Errorf("%w: the backend names %d changes", overlay.ErrTooMany, len(out))
	}
	err = piped.Join(
		func(w io.Writer) error { return s.box.Get(ctx, s.workspace, sdk.FormatTar, w) },
		func(r io.Reader) error { return s.take(ctx, tar.NewReader(r), wanted) })
	if err != nil {
		return nil, fmt.Errorf("fetch the workspace: %w", err)
	}
	// What the list says of a file is only where it is; what it is, the stream says.
	for i, c := range out {
		f, ok := s.files[c.Path]
		switch {
		case c.Kind == overlay.Deleted:
		case !ok:
			return nil, fmt.Errorf("the backend lists %s as %s and does not send it: it may have changed just then",
				Quote(c.Path), c.Kind)
		default:
			if f.left != "" {
				f.node.Size = c.Size
				s.files[c.Path] = f
			}
			out[i].NewMode = f.node.Mode
			out[i].Size = f.node.Size
		}
	}
	return out, nil
}

// take keeps what is wanted of a stream. Nothing in it is trusted: names are keys and never opened.
func (s *remote) take(ctx context.Context, t *tar.Reader, wanted map[string]bool) error {
	left, entries := int64(maxStageBytes), 0
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if entries++; entries > overlay.DefaultMaxEntries {
			return fmt.Errorf("it has more than %d entries", overlay.DefaultMaxEntries)
		}
		name := path.Clean(strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/"))
		if !wanted[name] || !safefile.Local(name) {
			continue
		}
		f := remoteFile{node: Node{Stat: safefile.Stat{Mode: safefile.ModeOf(uint32(h.Mode) & 0o7777),
			Mtime: h.ModTime.UnixNano()}}}
		if reason, detail := tree.LeftOut(h); reason == safefile.ReasonTooBig && h.Typeflag != tar.TypeDir {
			f.node.Type, f.left = File, detail
			s.files[name] = f
			continue
		}
		switch h.Typeflag {
		case tar.TypeReg:
			f.node.Type, f.node.Size = File, h.Size
			if h.Size > maxFileBytes || h.Size > left {
				break // reported when somebody wants to read it
			}
			left -= h.Size
			f.at = path.Join(s.dir, strconv.Itoa(entries))
			if err := keepStream(f.at, t); err != nil {
				return err
			}
		case tar.TypeDir:
			f.node.Type = Directory
			f.node.Mode |= fs.ModeDir
		case tar.TypeSymlink:
			f.node.Type, f.node.Mode, f.node.Link = Symlink, fs.ModeSymlink, h.Linkname
		default:
			f.node.Type = Special
			f.node.Mode |= fs.ModeIrregular
		}
		s.files[name] = f
	}
}

func keepStream(to string, r io.Reader) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

func (s *remote) look(p string) (Node, error) { return s.files[p].node, nil }

func (s *remote) copy(ctx context.Context, dst io.Writer, p string, max int64) (safefile.Copied, error) {
	f := s.files[p]
	if f.left != "" {
		return safefile.Copied{}, &safefile.Error{Path: p, Reason: safefile.ReasonTooBig, Detail: f.left}
	}
	if f.at == "" || f.node.Size > max {
		return safefile.Copied{}, &safefile.Error{Path: p, Reason: safefile.ReasonTooBig,
			Detail: fmt.Sprintf("it has %d bytes, at most %d are taken", f.node.Size, min(max, maxFileBytes))}
	}
	src, err := os.Open(f.at)
	if err != nil {
		return safefile.Copied{}, err
	}
	defer src.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(dst, h), src)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return safefile.Copied{Info: safefile.Info{Size: n, Mode: f.node.Mode.Perm()},
		SHA256: hex.EncodeToString(h.Sum(nil))}, err
}
