package sandbox

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/piped"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/tree"
)

// errStopped ends a stream of which enough was seen.
var errStopped = errors.New("enough was read")

// Caps bound what is taken out of a sandbox; zeros mean the defaults, 4 GiB and 200,000 entries.
type Caps = tree.Caps

// CopyOut copies the file or directory at from, absolute inside the sandbox, to the host, as cp -r and docker cp do: to
// an existing directory under its own name (or, when from ends with "/.", what is in it), else to what to names. What
// comes out is hostile: it is bounded by caps, links that lead out of the destination refuse it, and nothing is written
// outside of it. A directory is merged into what is there, all or nothing; a file gets mode 0644. What [judge.Copied]
// refuses and allow does not allow is a *[judge.RefusedError].
func (s *Sandbox) CopyOut(ctx context.Context, from, to string, caps Caps, allow map[judge.Rule]bool) error {
	if err := s.needs(sdk.CapGet); err != nil {
		return err
	}
	from, err := s.inside(from)
	if err != nil {
		return err
	}
	name := path.Base(path.Clean(from))
	contents := strings.HasSuffix(from, "/.") || name == "/"
	st, err := os.Stat(to)
	isDir := err == nil && st.IsDir()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if strings.HasSuffix(to, "/") && !isDir {
		return fmt.Errorf("there is no directory %s", to)
	}
	file := to
	if isDir {
		file = filepath.Join(to, name)
	}
	err = s.fileOut(ctx, from, file, caps, allow)
	var no *noFileError
	if !errors.As(err, &no) {
		return s.copied(err, copied{Way: "out", Path: from})
	}
	dir := to
	if isDir && !contents {
		dir = filepath.Join(to, name)
	}
	return s.copied(s.treeOut(ctx, from, dir, caps, allow, no.error), copied{Way: "out", Path: from})
}

// noFileError says why what is to be copied is no regular file that can be taken.
type noFileError struct{ error }

// Unwrap returns the error underneath.
func (e *noFileError) Unwrap() error { return e.error }

// fileOut copies one regular file. It takes its place when it is whole.
func (s *Sandbox) fileOut(ctx context.Context, from, to string, caps Caps, allow map[judge.Rule]bool) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".hutch-cp-*")
	if err != nil {
		return err
	}
	w := &cappedFile{f: f, most: cmp.Or(caps.File, caps.Bytes, tree.DefaultMaxBytes)}
	defer os.Remove(f.Name()) // unless it has taken its place
	defer f.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tell, over := s.progress()
	err = s.Sandbox.Get(sdk.WithProgress(ctx, func(step string, done, total int64) {
		if w.n == 0 && step == sdk.FetchingFile && total > w.most && w.err == nil {
			w.err = w.tooLarge()
			cancel() // before anything of it is read
		}
		tell(step, done, total)
	}), from, sdk.FormatFile, w)
	over()
	switch {
	case w.err != nil:
		return w.err
	case err == nil:
	case errors.As(err, new(*backend.DiedError)): // whatever it is, nobody will copy it now
		return err
	case w.n == 0 && ctx.Err() == nil && !errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}):
		return &noFileError{err}
	default:
		return err
	}
	if st, err := os.Lstat(to); err == nil && st.IsDir() {
		return fmt.Errorf("%s is a directory", to)
	}
	if err := judge.RefuseCopy(nil, to, allow); err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}

// cappedFile is a file of at most so many bytes. It keeps the reason why it cannot be written.
type cappedFile struct {
	f       *os.File
	most, n int64
	err     error
}

// Write implements [io.Writer].
func (w *cappedFile) Write(p []byte) (n int, err error) {
	if w.n += int64(len(p)); w.n > w.most {
		err = w.tooLarge()
	} else {
		n, err = w.f.Write(p)
	}
	w.err = cmp.Or(w.err, err)
	return n, err
}

func (w *cappedFile) tooLarge() error {
	return fmt.Errorf("the file is larger than %d bytes (--max-size allows more)", w.most)
}

// treeOut copies a directory into dir, which is made when it is missing. why is what was said about it as a file.
func (s *Sandbox) treeOut(ctx context.Context, from, dir string, caps Caps, allow map[judge.Rule]bool,
	why error) error {
	r, w := io.Pipe()
	got := make(chan error, 1)
	go func() {
		err := s.Get(ctx, from, sdk.FormatTar, w)
		w.CloseWithError(err)
		got <- err
	}()
	first := make([]byte, 512)
	n, err := io.ReadFull(r, first)
	if err != nil { // it never came to a tree
		r.CloseWithError(errStopped)
		if err = <-got; errors.Is(err, &sdk.Error{Reason: sdk.ReasonConfig}) {
			return why // it is no directory either
		}
		return errors.Join(err, why)
	}
	made := false
	if err = os.Mkdir(dir, 0o755); err == nil {
		made = true
	} else if st, serr := os.Stat(dir); serr == nil && st.IsDir() {
		err = nil
	}
	if err == nil {
		var root *os.Root
		if root, err = os.OpenRoot(dir); err == nil {
			_, err = tree.UnpackIf(ctx, io.MultiReader(strings.NewReader(string(first[:n])), r), root, caps,
				func(stage *os.Root) error {
					return judge.RefuseCopy(stage, dir, allow)
				})
			err = errors.Join(err, root.Close())
		}
	}
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
	}
	r.CloseWithError(errStopped)
	if gerr := <-got; err == nil && gerr != nil && !errors.Is(gerr, errStopped) {
		err = gerr
	}
	if err != nil && made {
		_ = os.Remove(dir)
	}
	return err
}

// StreamOut writes the directory at from as a tar stream, as the backend gives it: its reader reads hostile data.
func (s *Sandbox) StreamOut(ctx context.Context, from string, w io.Writer) error {
	from, err := s.inside(from)
	if err = errors.Join(s.needs(sdk.CapGet), err); err != nil {
		return err
	}
	return s.copied(s.Get(ctx, from, sdk.FormatTar, w), copied{Way: "out", Path: from})
}

// CopyIn copies a file or directory of the host to the path to, absolute inside the sandbox, as cp -r and docker cp do:
// into an existing directory under its own name (or, when from ends with "/.", what is in it), else to what to names.
// Permissions come along. A link named by from is followed, links in a directory are copied as links.
func (s *Sandbox) CopyIn(ctx context.Context, from, to string) error {
	to, err := s.inside(to)
	if err = errors.Join(s.needs(sdk.CapPut), err); err != nil {
		return err
	}
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	abs, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	isDir, err := s.isDir(ctx, to)
	if err != nil {
		return err
	}
	if !isDir && strings.HasSuffix(to, "/") && !st.IsDir() {
		return fmt.Errorf("the sandbox has no directory %s", to)
	}
	name := filepath.Base(abs)
	if !st.IsDir() {
		parent := path.Clean(to)
		if !isDir {
			parent, name = path.Split(parent)
		}
		n, err := s.fileIn(ctx, from, path.Clean(parent), name)
		return s.copied(err, copied{Way: "in", Path: path.Join(parent, name), sent: n})
	}
	at := path.Clean(to)
	if isDir && !strings.HasSuffix(from, "/.") {
		at = path.Join(at, name)
	}
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer root.Close()
	c := copied{Way: "in", Path: at, Tar: true}
	err = s.put(ctx, at, func(w io.Writer) error {
		sum := newSum(w)
		_, err := tree.Pack(ctx, root, sum, tree.PackOptions{})
		c.sent = sum.sent()
		return err
	})
	return s.copied(err, c)
}

// fileIn copies one regular file as a tree that holds nothing else, so that its permissions come along.
func (s *Sandbox) fileIn(ctx context.Context, from, dir, name string) (n sent, err error) {
	f, err := os.OpenFile(from, os.O_RDONLY|nonblock, 0) // which must not wait for the writer of a FIFO
	if err != nil {
		return n, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return n, err
	}
	if !st.Mode().IsRegular() {
		return n, fmt.Errorf("%s is neither a file nor a directory", from)
	}
	err = s.put(ctx, dir, func(w io.Writer) error {
		t := tar.NewWriter(w)
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: st.Size(),
			Mode: int64(st.Mode().Perm()), ModTime: st.ModTime().Truncate(time.Second)}); err != nil {
			return err
		}
		sum := newSum(t)
		if n, err := io.CopyN(sum, f, st.Size()); err != nil {
			return fmt.Errorf("%s changed while it was read, after %d bytes: %w", from, n, err)
		}
		n = sum.sent()
		return t.Close()
	})
	return n, err
}

// StreamIn unpacks a tar stream into the directory to, absolute inside the sandbox, which is made when it is missing.
func (s *Sandbox) StreamIn(ctx context.Context, r io.Reader, to string) error {
	to, err := s.inside(to)
	if err = errors.Join(s.needs(sdk.CapPut), err); err != nil {
		return err
	}
	defer s.copying()()
	sum := newSum(io.Discard)
	err = s.Put(ctx, path.Clean(to), sdk.FormatTar, io.TeeReader(r, sum))
	return s.copied(err, copied{Way: "in", Path: path.Clean(to), Tar: true, sent: sum.sent()})
}

// put sends what pack writes as a tree to dir.
func (s *Sandbox) put(ctx context.Context, dir string, pack func(io.Writer) error) error {
	defer s.copying()()
	return piped.Join(pack, func(r io.Reader) error { return s.Put(ctx, dir, sdk.FormatTar, r) })
}

// copying reports what takes so long. How far it is only the backend knows, which may send it on when it has
// all.
func (s *Sandbox) copying() (over func()) {
	tell, over := s.progress()
	tell("copying into the sandbox", 0, 0)
	return over
}

// isDir says whether there is a directory at p.
func (s *Sandbox) isDir(ctx context.Context, p string) (bool, error) {
	if err := s.needs(sdk.CapGet); err != nil {
		return strings.HasSuffix(p, "/"), nil
	}
	var seen stopWriter
	err := s.Get(ctx, path.Clean(p), sdk.FormatTar, &seen)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return bool(seen) || err == nil, nil
}

// stopWriter ends a stream at its first byte.
type stopWriter bool

// Write implements [io.Writer].
func (w *stopWriter) Write([]byte) (int, error) {
	*w = true
	return 0, errStopped
}

func (s *Sandbox) needs(c sdk.Capability) error {
	if !s.backend.Facts.Has(c) {
		return fmt.Errorf("backend %q has no way to copy files (%s)", s.Record.Backend, c)
	}
	return nil
}

// inside is the path p, which must be absolute, as the sandbox sees it: the workspace is /workspace to users, also
// where a backend has it elsewhere.
func (s *Sandbox) inside(p string) (string, error) {
	if !path.IsAbs(p) {
		return "", fmt.Errorf("the path %q inside the sandbox is not absolute", p)
	}
	const workspace = "/workspace"
	at := s.Ready().Workspace
	if p == at || at != "" && strings.HasPrefix(p, at+"/") { // as commands in the sandbox name it
		return p, nil
	}
	if rest, ok := strings.CutPrefix(p, workspace); ok && at != "" && (rest == "" || rest[0] == '/') {
		return at + rest, nil
	}
	return p, nil
}

// copied is what the chain of the sandbox says about a copy.
type copied struct {
	Way  string `json:"way"`           // in or out
	Path string `json:"path"`          // inside the sandbox
	Tar  bool   `json:"tar,omitempty"` // size and hash are of a tar stream: what was copied in is a tree
	sent
}

// sent is what went into the sandbox.
type sent struct {
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // hex
}

// summing counts and hashes what is written through it.
type summing struct {
	to  io.Writer
	n   int64
	sum hash.Hash
}

func newSum(to io.Writer) *summing { return &summing{to: to, sum: sha256.New()} }

// Write implements [io.Writer].
func (w *summing) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.n += int64(n)
	w.sum.Write(p[:n])
	return n, err
}

func (w *summing) sent() sent { return sent{w.n, hex.EncodeToString(w.sum.Sum(nil))} }

// copied notes a copy in the chain of the sandbox.
func (s *Sandbox) copied(err error, c copied) error {
	if err != nil {
		return about(s.Record, err)
	}
	if c.Way == "out" {
		return s.rec.Event(store.EventSandboxCopy, c)
	}
	return s.rec.Changed(store.EventSandboxCopy, c)
}

// moved returns the record of a sandbox, whose paths it corrects when the whole store was moved since. In a copy of a
// store it refuses: the sandbox's processes, container or machine belong to the original.
func (m *Manager) moved(rec *store.SandboxRecord) (store.SandboxInfo, error) {
	info, home := rec.Info(), m.store.Paths().Data
	if original := m.store.Original(info.Home, info.ID); original != "" {
		return info,
			fmt.Errorf("sandbox %q belongs to the store at %s, of which this one (%s) is a copy: work with it there; `hutch "+
				"rm %s` removes the copy only", info.Name, original, home, info.Name)
	}
	if info.Home == home || info.Home == "" {
		return info, nil
	}
	err := rec.Update(func(i *store.SandboxInfo) {
		paths := []*string{&i.Workspace.Source}
		if l := i.Workspace.Layers; l != nil {
			copied := *l
			i.Workspace.Layers = &copied
			copied.Frozen = slices.Clone(l.Frozen)
			paths = append(paths, &copied.Lower, &copied.Upper)
			for k := range copied.Frozen {
				paths = append(paths, &copied.Frozen[k])
			}
		}
		i.Mounts = append([]string(nil), i.Mounts...)
		for k := range i.Mounts {
			paths = append(paths, &i.Mounts[k])
		}
		for _, p := range paths {
			if rest, ok := strings.CutPrefix(*p, info.Home+"/"); ok {
				*p = filepath.Join(home, rest)
			}
		}
		i.Home, i.Owner = home, m.store.Owner()
	})
	return rec.Info(), err
}
