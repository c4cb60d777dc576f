package inside

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/safefile"
)

func unspoken(format contract.Format) error {
	return contract.Errorf(contract.ReasonUnsupported, "files are not sent as %q", format)
}

// Error gives an error about the path p the reason that the contract has for it; nil stays nil.
func Error(p string, err error) error {
	var hostile *safefile.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return &contract.Error{Reason: contract.ReasonNotFound,
			Summary: fmt.Sprintf("there is no %s in the sandbox: something on the way to it is no directory", p), Err: err}
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &hostile) && hostile.Reason == safefile.ReasonMissing:
		return &contract.Error{Reason: contract.ReasonNotFound, Summary: fmt.Sprintf("there is no %s in the sandbox", p),
			Err: err}
	case errors.As(err, &hostile) && strings.HasSuffix(p, "/"+hostile.Path): // it is about p itself, and names it once more
		return &contract.Error{Reason: contract.ReasonConfig, Summary: p + ": " + hostile.Detail, Err: err}
	case errors.As(err, &hostile):
		return contract.Errorf(contract.ReasonConfig, "%s: %w", p, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return contract.Errorf(contract.ReasonQuota, "%s: %w", p, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return contract.Errorf(contract.ReasonDenied, "%s: %w", p, err)
	}
	return fmt.Errorf("%s: %w", p, err)
}

// NoDir is [Error] for a directory that could not be made at p.
func NoDir(p string, err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
		return contract.Errorf(contract.ReasonConfig, "a tree cannot be written to %s, which is no directory: %w", p, err)
	}
	return Error(p, err)
}

// Refused says why a tree could not be written at p: for want of room or rights, or because of what the tree holds.
// When ctx has ended the error is passed on as it is.
func Refused(ctx context.Context, p string, err error) error {
	reason := contract.ReasonConfig
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		reason = contract.ReasonQuota
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		reason = contract.ReasonDenied
	}
	return contract.Errorf(reason, "the tree cannot be written to %s: %w", p, err)
}
