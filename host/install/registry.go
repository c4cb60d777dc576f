package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/helper"
	"github.com/hutch-run/hutch/host/install/careful"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/host/termsafe"
)

// Registry is one repository of a registry. [oci.Repository] is one.
type Registry interface {
	source
	Push(ctx context.Context, m *release.Manifest, raw, signature []byte,
		open func(release.Archive) (io.ReadCloser, error)) (string, error)
}

// repositoryForm is HOST[:PORT]/PATH. A host has a dot or a port, or is localhost: a host with neither is more likely a
// mistake.
var repositoryForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]{1,5}|\[[0-9A-Fa-f:]+\])` +
		`(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+$`)
})

// agent is a repository that is reached through hutch-agent.
type agent struct {
	program string
	ref     string
}

func newAgent(ref string) (*agent, error) {
	_, program, err := helper.Find()
	return &agent{program: program, ref: ref}, err
}

// Answer is what hutch-agent prints as its last or only line on stdout, or for archive as its last on stderr.
type Answer struct {
	Versions  []string `json:"versions,omitempty"`
	Manifest  []byte   `json:"manifest,omitempty"`
	Signature []byte   `json:"signature,omitempty"`
	Digest    string   `json:"digest,omitempty"`
	Error     string   `json:"error,omitempty"`
	None      bool     `json:"none,omitempty"` // the error is that there is nothing of that name
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 2 << 20

// run makes one call. Data goes to w when it is not nil, and then the answer comes on stderr.
func (h *agent) run(ctx context.Context, w io.Writer, args ...string) (*Answer, error) {
	cmd := exec.CommandContext(ctx, h.program, append([]string{"registry"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var answer bounded
	if w == nil {
		cmd.Stdout = &answer
		cmd.Stderr = os.Stderr
	} else {
		cmd.Stdout, cmd.Stderr = w, &answer
	}
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	var a Answer
	if jerr := json.Unmarshal(answer, &a); jerr != nil {
		if err == nil {
			err = jerr
		}
		return nil, fmt.Errorf("%s: %w: %s", helper.Name, err, termsafe.Line(string(answer)))
	}
	switch {
	case a.Error != "" && a.None:
		return nil, fmt.Errorf("%s: %w", strings.TrimSuffix(a.Error, ": "+careful.ErrNone.Error()), careful.ErrNone)
	case a.Error != "":
		return nil, errors.New(a.Error)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", helper.Name, err)
	}
	return &a, nil
}

// bounded keeps the beginning of what is written to it.
type bounded []byte

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxAnswer - len(*b); len(p) <= room {
		*b = append(*b, p...)
	} else {
		*b = append(*b, p[:room]...)
	}
	return len(p), nil
}

// Versions implements [Registry].
func (h *agent) Versions(ctx context.Context) ([]string, error) {
	a, err := h.run(ctx, nil, "versions", h.ref)
	if err != nil {
		return nil, err
	}
	return a.Versions, nil
}

// Manifest implements [Registry].
func (h *agent) Manifest(ctx context.Context, version string) (raw, signature []byte, err error) {
	a, err := h.run(ctx, nil, "manifest", h.ref, version)
	if err != nil {
		return nil, nil, err
	}
	return a.Manifest, a.Signature, nil
}

// Archive implements [Registry].
func (h *agent) Archive(ctx context.Context, version string, a release.Archive, w io.Writer) error {
	_, err := h.run(ctx, w, "archive", h.ref, version, a.SHA256, fmt.Sprint(a.Size))
	return err
}

// Push implements [Registry]. The archives must be files.
func (h *agent) Push(ctx context.Context, m *release.Manifest, _, _ []byte,
	open func(release.Archive) (io.ReadCloser, error)) (string, error) {
	f, err := open(m.Archives[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	file, ok := f.(*os.File)
	if !ok {
		return "", errors.New("a release is published from a directory")
	}
	manifest := filepath.Join(filepath.Dir(file.Name()), release.ManifestName(m.Name, m.Version))
	a, err := h.run(ctx, nil, "push", h.ref, manifest)
	if err != nil {
		return "", err
	}
	return a.Digest, nil
}
