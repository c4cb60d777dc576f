package run

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/keep"
	"github.com/hutch-run/hutch/host/piped"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	"github.com/hutch-run/hutch/sdk/tree"
)

// furnish puts what the home blocks of the run name into the home directory of the sandbox's user.
func (j *job) furnish(ctx context.Context, p *place) error {
	if len(j.d.Home) == 0 {
		return nil
	}
	if !p.b.Facts.Has(sdk.CapPut) {
		return &sdk.Error{Reason: sdk.ReasonUnsupported,
			Summary: fmt.Sprintf("backend %q cannot put files into a home directory", p.b.Facts.Name),
			Fix:     "take the home blocks away, or use another backend"}
	}
	home, err := homeOf(ctx, p.Sandbox, j.d.Env["HOME"])
	if err != nil {
		return err
	}
	put, done := putter(func(at, _ string, pack func(io.Writer) error) error { return send(ctx, p.Sandbox, at, pack) }),
		func() error { return nil }
	if p.keep {
		k, err := keepHome(j.r.opt.Store.Paths().SandboxState(p.ID()))
		if err != nil {
			return err
		}
		done = k.close
		put = func(at, path string, pack func(io.Writer) error) error { return k.put(ctx, p.Sandbox, at, path, pack) }
	}
	for _, h := range j.d.Home {
		j.progress("home: "+h.Path, 0, 0)
		if err := putHome(ctx, put, home, h); err != nil {
			return fmt.Errorf("put %s into the home directory %s: %w", h.Path, home, err)
		}
	}
	return done()
}

// homeOf asks a shell in the sandbox where its user is at home, unless the run says so.
func homeOf(ctx context.Context, sb *client.Sandbox, given string) (string, error) {
	home := given
	if home == "" {
		var out bytes.Buffer
		exit, err := sb.Exec(ctx, &client.Command{Argv: []string{"sh", "-c", `printf %s "$HOME"`}, Dir: sb.Ready().Workspace,
			Stdout: &keep.Limit{W: &out, Max: 4096}, Timeout: time.Minute})
		switch {
		case err != nil:
			return "", err
		case exit.Cause != sdk.CauseExited || exit.Code != 0:
			return "", fmt.Errorf("ask the sandbox for its home directory: the shell ended with %s, code %d", exit.Cause,
				exit.Code)
		}
		home = out.String()
	}
	if !path.IsAbs(home) || strings.ContainsRune(home, 0) {
		return "", fmt.Errorf("the home directory %q in the sandbox is not an absolute path", home)
	}
	return path.Clean(home), nil
}

// putter puts what pack writes into the directory at, which makes path.
type putter func(at, path string, pack func(io.Writer) error) error

// putHome sends one file or directory as a tree, so that permissions come along and directories above are made.
func putHome(ctx context.Context, put putter, home string, h runfile.HomeFile) error {
	at := path.Join(home, h.Path)
	if h.Source == "" {
		return put(path.Dir(at), at, func(w io.Writer) error {
			return tarFile(w, path.Base(at), int64(len(h.Content)), fs.FileMode(h.Mode), bytes.NewReader(h.Content))
		})
	}
	f, err := os.Open(h.Source)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return put(path.Dir(at), at, func(w io.Writer) error {
			return tarFile(w, path.Base(at), st.Size(), st.Mode().Perm(),
				f)
		})
	}
	root, err := os.OpenRoot(h.Source)
	if err != nil {
		return err
	}
	defer root.Close()
	return put(at, at, func(w io.Writer) error {
		_, err := tree.Pack(ctx, root, w, tree.PackOptions{})
		return err
	})
}

func tarFile(w io.Writer, name string, size int64, mode os.FileMode, r io.Reader) error {
	t := tar.NewWriter(w)
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: int64(mode)}); err != nil {
		return err
	}
	if _, err := io.CopyN(t, r, size); err != nil {
		return err
	}
	return t.Close()
}

// send puts what pack writes into the directory at, which is made when it is missing.
func send(ctx context.Context, sb *client.Sandbox, at string, pack func(io.Writer) error) error {
	return piped.Join(pack, func(r io.Reader) error { return sb.Put(ctx, at, sdk.FormatTar, r) })
}
