package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/pgzip"

	"github.com/hutch-run/hutch/plugins/e2b/scripts"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/tree"
)

// clean checks a path inside the sandbox.
func clean(p string) (string, error) {
	if !path.IsAbs(p) || strings.IndexByte(p, 0) >= 0 {
		return "", sdk.Errorf(sdk.ReasonConfig, "the path %q inside the sandbox is not absolute, or holds a NUL", p)
	}
	return path.Clean(p), nil
}

// yesNo is an argument of a script.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Put implements [sdk.Putter]. What is put is checked here, sent to a new file, and brought into place by the sandbox's
// user. What arrived damaged is not sent again: it comes from a stream, which can be read once.
func (s *sandbox) Put(ctx context.Context, p string, format sdk.Format, r io.Reader) error {
	p, err := clean(p)
	if err != nil {
		return err
	}
	var script string
	var write func(context.Context, io.Writer) error
	switch format {
	case sdk.FormatFile:
		script = scripts.Put
		write = func(_ context.Context, w io.Writer) error {
			_, err := io.Copy(w, r)
			return err
		}
	case sdk.FormatTar:
		dir, err := sdk.MkdirTemp()
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := unpackHere(ctx, r, dir); err != nil {
			return err
		}
		script = scripts.Merge
		write = func(ctx context.Context, w io.Writer) error { return zipped(ctx, dir, w) }
	default:
		return sdk.Errorf(sdk.ReasonUnsupported, "e2b does not speak %q", format)
	}
	from := basePath + "/jobs/" + s.user() + "/put." + rand.Text() // where the user may remove it
	var size counter
	sum := sha256.New()
	err = s.upload(ctx, from, s.user(), func(ctx context.Context, w io.Writer) error {
		return write(ctx, io.MultiWriter(w, sum, &size))
	})
	if err != nil {
		s.drop(ctx, from)
		return typed(err, "send to "+p)
	}
	arrived := []string{from, strconv.FormatInt(int64(size), 10), hex.EncodeToString(sum.Sum(nil))}
	return pathError(p, s.sh(ctx, "write to "+p, s.user(), script, nil, append(arrived, scripts.Quote(p))...))
}

// unpackHere unpacks a tree that may be hostile into a new directory of this host, which checks it.
func unpackHere(ctx context.Context, r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err = tree.Unpack(ctx, r, root, tree.Caps{}); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		return sdk.Errorf(sdk.ReasonConfig, "the tree is refused: %w", err)
	}
	return nil
}

// zipped packs a directory of this host.
func zipped(ctx context.Context, dir string, w io.Writer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	zip, err := pgzip.NewWriterLevel(w, gzipLevel)
	if err != nil {
		return err
	}
	_, err = tree.Pack(ctx, root, zip, tree.PackOptions{})
	return errors.Join(err, zip.Close())
}

// drop removes a file of hutch's own in the machine, whatever became of the call that made it.
func (s *sandbox) drop(ctx context.Context, file string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := s.sh(ctx, "remove what is not needed any more", rootUser, `rm -f -- "$1"`, nil, file); err != nil {
		sdk.Log(ctx).Debug("a file stays in the machine", "file", file, "error", err)
	}
}

// pathError says what a script found at a path.
func pathError(p string, err error) error {
	var e *scriptError
	if !errors.As(err, &e) {
		return err
	}
	switch e.code {
	case scripts.Missing:
		return sdk.Errorf(sdk.ReasonNotFound, "there is no %s in the sandbox: %s", p, e.stderr)
	case scripts.NotFile, scripts.NotDir, scripts.Directory:
		return sdk.Errorf(sdk.ReasonConfig, "%s: %s", p, e.stderr)
	case scripts.Damaged:
		return sdk.Errorf(sdk.ReasonUnavailable, "%s: what arrived in the machine is not what was sent",
			p).WithFix("try again")
	}
	reason := sdk.ReasonConfig
	switch {
	case strings.Contains(e.stderr, "No space left"), strings.Contains(e.stderr, "quota"):
		reason = sdk.ReasonQuota
	case strings.Contains(e.stderr, "Permission denied"), strings.Contains(e.stderr, "Read-only"):
		reason = sdk.ReasonDenied
	case strings.Contains(e.stderr, "No such file"):
		reason = sdk.ReasonNotFound
	}
	return sdk.Errorf(reason, "%s: %s", p, cmp.Or(e.stderr, fmt.Sprintf("the machine's shell ended with %d", e.code)))
}

// Get implements [sdk.Getter].
func (s *sandbox) Get(ctx context.Context, p string, format sdk.Format, w io.Writer) error {
	p, err := clean(p)
	switch {
	case err != nil:
		return err
	case format == sdk.FormatTar:
		return s.getTree(ctx, p, w)
	case format != sdk.FormatFile:
		return sdk.Errorf(sdk.ReasonUnsupported, "e2b does not speak %q", format)
	}
	out := sdk.SizeLine(ctx, w)
	err = s.sh(ctx, "read "+p, rootUser, scripts.Read, func(b []byte) error {
		_, err := out.Write(b)
		return err
	}, scripts.Quote(p))
	return pathError(p, err)
}

// getTree fetches a directory as one archive. Of what was sent there only that travels which is another than it was,
// where that can be had.
func (s *sandbox) getTree(ctx context.Context, p string, w io.Writer) error {
	if rel, ok := s.sentTo(p); ok {
		done, err := s.assemble(ctx, rel, w)
		if done || ctx.Err() != nil {
			return err
		}
		sdk.Log(ctx).Debug("the directory is fetched as a whole", "path", p, "why", err)
	}
	return s.fetch(ctx, p, nil, func(r io.Reader) error {
		return relay(ctx, r, w)
	})
}

// fetch has what is at p packed, downloads it, looks whether it is what was packed, and lets take read it, unzipped, on
// the way. What take did with it counts only when fetch succeeds. With a list it is about the names there alone.
func (s *sandbox) fetch(ctx context.Context, p string, list []string, take func(io.Reader) error) error {
	to := basePath + "/get." + rand.Text()
	report := sdk.Progress(ctx)
	report("packing what comes back", 0, 0)
	args := append([]string{to, scripts.Quote(p)}, list...)
	var said strings.Builder
	pack := func() error {
		said.Reset()
		return s.sh(ctx, "pack "+p, rootUser, scripts.Pack, func(b []byte) error {
			said.Write(b[:min(len(b), 1000)])
			return nil
		}, args...)
	}
	var err error
	if list == nil {
		err = s.repeated(ctx, pack)
	} else {
		err = pack() // which takes the list with it
	}
	if err != nil {
		var e *scriptError
		if !errors.As(err, &e) { // which removes it itself
			s.drop(ctx, to)
		}
		return pathError(p, err)
	}
	defer s.drop(ctx, to)
	var size int64
	var sum string
	if _, err := fmt.Sscan(said.String(), &size, &sum); err != nil || size <= 0 || len(sum) != 2*sha256.Size {
		return sdk.Errorf(sdk.ReasonUnavailable, "pack %s: the machine says %.100q of its archive", p, said.String())
	}
	body := &download{ctx: ctx, s: s, path: to, size: size}
	if err := body.open(); err != nil {
		return typed(err, "fetch "+p)
	}
	defer body.Close()
	seen, got := sha256.New(), counter(0)
	bar := &progress{step: "fetching files", total: size, report: report}
	in := io.TeeReader(io.LimitReader(body, size+1), io.MultiWriter(seen, &got, bar))
	err = unzip(in, take)
	if err == nil {
		_, err = io.Copy(io.Discard, in) // what follows the end of the archive counts to the hash
	}
	broke := sdk.Errorf(sdk.ReasonUnavailable, "fetch %s: the connection broke after %d of %d bytes", p, int64(got), size)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case int64(got) < size && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)):
		return broke.WithFix("try again")
	case err != nil:
		return err
	case int64(got) != size || hex.EncodeToString(seen.Sum(nil)) != sum:
		return sdk.Errorf(sdk.ReasonUnavailable, "fetch %s: what arrived is not what was packed", p).WithFix("try again")
	}
	return nil
}

// unzip lets take read what is zipped in r.
func unzip(r io.Reader, take func(io.Reader) error) error {
	zip, err := pgzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("read the archive that the machine sends: %w", err)
	}
	err = take(zip)
	return errors.Join(err, zip.Close())
}

// Remove implements [sdk.Remover].
func (s *sandbox) Remove(ctx context.Context, p string, recursive bool) error {
	p, err := clean(p)
	if err != nil {
		return err
	}
	for _, own := range []string{s.ready.Workspace, s.ready.Input, s.ready.Output} {
		if own != "" && (p == "/" || own == p || strings.HasPrefix(own, p+"/")) {
			return sdk.Errorf(sdk.ReasonConfig, "%s is part of the sandbox and cannot be removed",
				p).WithFix("remove what is in it")
		}
	}
	return pathError(p, s.sh(ctx, "remove "+p, s.user(), scripts.Remove, nil, scripts.Quote(p), yesNo(recursive)))
}

// Reset implements [sdk.Resetter].
func (s *sandbox) Reset(ctx context.Context, hard bool) error {
	if err := s.sh(ctx, "end all commands", rootUser, scripts.End, nil, "KILL", "all", "-"); err != nil {
		return err
	}
	args := []string{basePath, s.user(), workspacePath, s.ready.Output, yesNo(!hard), cmp.Or(s.base.Archive, "-")}
	var e *scriptError
	switch err := s.sh(ctx, "reset the machine", rootUser, scripts.Reset, nil, append(args, s.besides()...)...); {
	case errors.As(err, &e) && e.code == scripts.Damaged:
		return sdk.Errorf(sdk.ReasonUnavailable,
			"a command with root's rights has changed the files that were sent into the machine").
			WithFix("remove the sandbox and make a new one")
	case err != nil:
		return err
	}
	if !hard {
		return nil
	}
	there, err := s.place(ctx)
	if err != nil {
		return err
	}
	for name, e := range there {
		e.Sum = s.base.Entries[name].Sum
		there[name] = e
	}
	s.base.Entries = there
	return s.save()
}
