package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hutch-run/hutch/host/install"
	"github.com/hutch-run/hutch/host/install/careful"
	"github.com/hutch-run/hutch/host/install/oci"
	"github.com/hutch-run/hutch/host/release"
)

// registry makes one call of a registry, for `hutch backend publish` and `hutch init`, and returns the exit code:
//
//	versions REPOSITORY
//	manifest REPOSITORY VERSION
//	archive  REPOSITORY VERSION SHA256 SIZE   writes the archive to stdout and the answer to stderr
//	push     REPOSITORY MANIFEST
//
// The answer is one line of JSON, an [install.Answer].
func registry(ctx context.Context, args []string) int {
	var a install.Answer
	err := callRegistry(ctx, args, &a)
	if err != nil {
		a = install.Answer{Error: err.Error(), None: errors.Is(err, careful.ErrNone)}
	}
	to := os.Stdout
	if len(args) > 0 && args[0] == "archive" {
		to = os.Stderr
	}
	if json.NewEncoder(to).Encode(a) != nil || err != nil {
		return 1
	}
	return 0
}

func callRegistry(ctx context.Context, args []string, a *install.Answer) error {
	if len(args) < 2 {
		return errors.New("usage: hutch-agent registry versions|manifest|archive|push REPOSITORY …")
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
			return fmt.Errorf("invalid hash or size: %s %s", rest[1], rest[2])
		}
		err = repo.Archive(ctx, rest[0], release.Archive{SHA256: rest[1], Size: size}, os.Stdout)
	case call == "push" && len(rest) == 1:
		a.Digest, err = push(ctx, repo, rest[0])
	default:
		return fmt.Errorf("there is no call %q with %d arguments", call, len(rest))
	}
	return err
}

// push publishes the release whose archives lie beside its manifest.
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
