// Command hutch-registry talks to OCI registries for hutch, which starts it: a registry client that was linked into hutch
// would cost each of its starts half a millisecond. It is not for people; `hutch backend publish` and `hutch init` are.
//
//	hutch-registry versions REPOSITORY
//	hutch-registry manifest REPOSITORY VERSION
//	hutch-registry archive  REPOSITORY VERSION SHA256 SIZE   the archive goes to stdout, the answer to stderr
//	hutch-registry push     REPOSITORY MANIFEST
//
// The answer is one line of JSON, an [install.Answer].
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/hutch-run/hutch/host/install"
	"github.com/hutch-run/hutch/host/install/careful"
	"github.com/hutch-run/hutch/host/install/oci"
	"github.com/hutch-run/hutch/host/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	var a install.Answer
	to := os.Stdout
	if len(os.Args) > 1 && os.Args[1] == "archive" {
		to = os.Stderr
	}
	err := do(ctx, os.Args[1:], &a)
	if err != nil {
		a = install.Answer{Error: err.Error(), None: errors.Is(err, careful.ErrNone)}
	}
	if json.NewEncoder(to).Encode(a) != nil || err != nil {
		os.Exit(1)
	}
}

func do(ctx context.Context, args []string, a *install.Answer) error {
	if len(args) < 2 {
		return errors.New("usage: hutch-registry versions|manifest|archive|push REPOSITORY …")
	}
	call, rest := args[0], args[2:]
	repo, err := oci.Open(args[1], careful.NewClient(nil, careful.DefaultStall))
	if err != nil {
		return err
	}
	switch {
	case call == "versions" && len(rest) == 0:
		a.Versions, err = repo.Versions(ctx)
	case call == "manifest" && len(rest) == 1:
		a.Manifest, a.Signature, err = repo.Manifest(ctx, rest[0])
	case call == "archive" && len(rest) == 3:
		size, serr := strconv.ParseInt(rest[2], 10, 64)
		if serr != nil || size < 1 || size > release.MaxArchive || release.CheckSHA256(rest[1]) != nil {
			return fmt.Errorf("%s %s is no hash and size", rest[1], rest[2])
		}
		err = repo.Archive(ctx, rest[0], release.Archive{SHA256: rest[1], Size: size}, os.Stdout)
	case call == "push" && len(rest) == 1:
		a.Digest, err = push(ctx, repo, rest[0])
	default:
		return fmt.Errorf("there is no call %q with %d arguments", call, len(rest))
	}
	return err
}

func push(ctx context.Context, repo *oci.Repository, manifest string) (string, error) {
	raw, err := os.ReadFile(manifest)
	if err != nil {
		return "", err
	}
	m, err := release.Parse(raw)
	if err != nil {
		return "", err
	}
	signature, err := os.ReadFile(release.SignatureName(manifest))
	if errors.Is(err, os.ErrNotExist) {
		signature, err = nil, nil
	}
	if err != nil {
		return "", err
	}
	return repo.Push(ctx, m, raw, signature, func(a release.Archive) (io.ReadCloser, error) {
		return os.Open(filepath.Join(filepath.Dir(manifest), a.File))
	})
}
