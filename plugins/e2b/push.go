package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/plugins/e2b/scripts"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// The members of the archive that is sent.
const (
	workspaceMember = "workspace"
	inputMember     = "input"
)

// part is one directory of this host that is sent.
type part struct {
	member   string // its name in the archive
	source   string
	readOnly bool   // nobody but root may write to it there
	git      bool   // what .gitignore names is left behind
	hutch    bool   // what .hutchignore names is
	target   string // where it is unpacked; "" for the workspace and the input, which have places of their own
}

// parts are what a sandbox of spec is to see of this host.
func parts(spec *sdk.Spec) (out []part) {
	if spec.Workspace.Source != "" {
		out = append(out, part{member: workspaceMember, source: spec.Workspace.Source, git: configOf(spec).GitIgnore, hutch: true})
	}
	if spec.Input != "" {
		out = append(out, part{member: inputMember, source: spec.Input, readOnly: true})
	}
	for i, m := range spec.Mounts {
		out = append(out, part{member: "mount" + strconv.Itoa(i), source: m.Source, readOnly: true, target: m.Target})
	}
	return out
}

// besides are the names at the workspace's top that are no part of it: only one without a project holds input and
// output.
func (s *sandbox) besides() (names []string) {
	for _, p := range []string{s.ready.Input, s.ready.Output} {
		if name, ok := strings.CutPrefix(p, workspacePath+"/"); ok {
			names = append(names, name)
		}
	}
	return names
}

// checkMounts refuses mounts that a copy cannot stand for, and places that are not free.
func checkMounts(spec *sdk.Spec) error {
	for _, m := range spec.Mounts {
		switch {
		case !m.ReadOnly:
			return sdk.Errorf(sdk.ReasonUnsupported, "e2b has no mount that can be written to: %s is on this host, and the sandbox is not", m.Source).
				WithFix("make the mount read-only, and use the workspace for what is to come back")
		case !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || !plaintext.IsLine(m.Target):
			return sdk.Errorf(sdk.ReasonConfig, "the target %q of a mount is not a clean absolute path", m.Target)
		}
		for _, own := range []string{workspacePath, guestpath.Input(true), guestpath.Output(true), basePath, "/proc", "/sys", "/dev"} {
			if m.Target == "/" || m.Target == own || strings.HasPrefix(m.Target, own+"/") {
				return sdk.Errorf(sdk.ReasonUnsupported, "nothing can be mounted at %s in the sandbox", m.Target)
			}
		}
	}
	return nil
}

// push sends what the sandbox is to see, and has it put into place. What arrived damaged, without a word of it, is sent
// once more: a way that loses bytes again does not do so by chance.
func (s *sandbox) push(ctx context.Context) error {
	packed, err := s.deliver(ctx)
	var e *scriptError
	if errors.As(err, &e) && e.code == scripts.Damaged {
		packed, err = s.deliver(ctx)
	}
	if err != nil {
		return s.setupFailed(err)
	}
	s.base = &base{}
	if packed != nil {
		s.base.Archive = packed.sum()
		if packed.left > 0 {
			s.ready.Notes = append(s.ready.Notes, fmt.Sprintf("%d sockets, devices and files that cannot be read were not sent", packed.left))
		}
	}
	if s.base.Entries, err = s.place(ctx, packed != nil); err != nil {
		return err
	}
	if packed != nil {
		return packed.verify(s.base.Entries)
	}
	return nil
}

// deliver sends the archive, if there is anything to send, and sets the machine up with it.
func (s *sandbox) deliver(ctx context.Context) (*packer, error) {
	list := parts(&s.spec)
	archive, size, sum := "-", int64(0), "-"
	var packed *packer
	if len(list) > 0 {
		var err error
		if packed, archive, err = s.send(ctx, list); err != nil {
			return nil, err
		}
		size, sum = packed.size, packed.sum()
	}
	input, rest := "-", []string(nil)
	for _, p := range list {
		switch {
		case p.member == inputMember:
			input = s.ready.Input
		case p.target != "":
			rest = append(rest, p.member, p.target)
		}
	}
	s.tell("unpacking", 0, 0)
	args := append([]string{basePath, s.user(), workspacePath, s.ready.Output, input, archive, strconv.FormatInt(size, 10), sum}, rest...)
	return packed, s.sh(ctx, "set the machine up", rootUser, scripts.Setup, nil, args...)
}

// user is whom commands run as.
func (s *sandbox) user() string { return cmp.Or(configOf(&s.spec).User, "user") }

// place unpacks the workspace, and lists what is there.
func (s *sandbox) place(ctx context.Context, archive bool) (map[string]entry, error) {
	from := "-"
	for _, p := range parts(&s.spec) {
		if archive && p.member == workspaceMember {
			from = "yes"
		}
	}
	var l listing
	script := scripts.Place + "shift 2\n" + scripts.List
	err := s.repeated(ctx, func() error {
		l = listing{}
		return s.sh(ctx, "unpack the workspace", s.user(), script, l.write, append([]string{basePath, from, workspacePath}, s.besides()...)...)
	})
	if err != nil {
		return nil, err
	}
	return l.entries(".")
}

// setupFailed says what a template lacks.
func (s *sandbox) setupFailed(err error) error {
	var e *scriptError
	if !errors.As(err, &e) {
		return err
	}
	template := configOf(&s.spec).Template
	switch e.code {
	case scripts.NoTools:
		return &sdk.Error{Reason: sdk.ReasonConfig, Path: "template", Summary: fmt.Sprintf("the template %s lacks %s", template, strings.TrimSpace(e.stderr)),
			Fix: "add them to the template; E2B's own base has them"}
	case scripts.NoUser:
		return &sdk.Error{Reason: sdk.ReasonConfig, Path: "user", Summary: fmt.Sprintf("the template %s has no user %s", template, s.user()),
			Fix: "set user in the backend block to one that it has"}
	case scripts.Damaged:
		return sdk.Errorf(sdk.ReasonUnavailable, "what arrived in the machine is not what was sent: %s", e.stderr).WithFix("try again")
	}
	return err
}

// send packs the parts and sends them while it does, and says where they are. It begins again when the connection
// breaks, twice, and elsewhere: nobody knows when the daemon has done with what it was sent before.
func (s *sandbox) send(ctx context.Context, list []part) (*packer, string, error) {
	total, err := measure(ctx, list)
	if err != nil {
		return nil, "", err
	}
	for n := 1; ; n++ {
		to := basePath + "/push." + rand.Text()
		p := &packer{list: list, hash: sha256.New(), files: &progress{step: "sending files", total: total, tell: s.tell}, entries: map[string]entry{}}
		err := s.upload(ctx, to, rootUser, p.write)
		if err == nil {
			return p, to, nil
		}
		if p.err != nil || ctx.Err() != nil || n == 3 || !transient(err) {
			return nil, "", typed(err, "send the workspace")
		}
		if serr := s.backend.sleep(ctx, lookAgain[n]); serr != nil {
			return nil, "", serr
		}
	}
}

// upload sends what write produces to a file in the machine.
func (s *sandbox) upload(ctx context.Context, to, user string, write func(context.Context, io.Writer) error) error {
	d, err := s.connect(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := write(ctx, w)
		w.CloseWithError(err)
		wrote <- err
	}()
	err = d.Upload(ctx, to, user, r)
	r.CloseWithError(errNobodyReads)
	cancel()
	if werr := <-wrote; werr != nil && !errors.Is(werr, errNobodyReads) && ctx.Err() != nil && !errors.Is(werr, context.Canceled) {
		return werr // why the sending ended
	}
	if err != nil {
		s.lost(err)
	}
	return err
}
