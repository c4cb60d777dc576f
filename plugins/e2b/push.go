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

// workspaceMember is the workspace's name in the archive that is sent.
const workspaceMember = "workspace"

// part is one directory of this host that is sent.
type part struct {
	member   string // its name in the archive
	source   string
	readOnly bool   // only root may write to it there
	git      bool   // what .gitignore names is left behind
	hutch    bool   // what .hutchignore names is
	target   string // where root unpacks it; "" for the workspace, which the user unpacks
}

// parts are what a sandbox of spec is to see of this host.
func parts(spec *sdk.Spec) (out []part) {
	if source := spec.Workspace.Source; source != "" {
		out = append(out, part{member: workspaceMember, source: source, git: configOf(spec).GitIgnore, hutch: true})
	}
	if spec.Input != "" {
		target := guestpath.Input(spec.Workspace.Source != "")
		out = append(out, part{member: "input", source: spec.Input, readOnly: true, target: target})
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

// checkMounts refuses mounts that are more than a copy, and targets that are taken.
func checkMounts(spec *sdk.Spec) error {
	taken := []string{workspacePath, guestpath.Input(true), guestpath.Output(true), basePath, "/proc", "/sys", "/dev"}
	for _, m := range spec.Mounts {
		switch {
		case !m.ReadOnly:
			return sdk.Errorf(sdk.ReasonUnsupported, "e2b has no writable mounts: the machine gets a copy of %s", m.Source).
				WithFix("make the mount read-only, and use the workspace for what is to come back")
		case !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || !plaintext.IsLine(m.Target):
			return sdk.Errorf(sdk.ReasonConfig, "the target %q of a mount is not a clean absolute path", m.Target)
		}
		for _, dir := range taken {
			if m.Target == "/" || m.Target == dir || strings.HasPrefix(m.Target, dir+"/") {
				return sdk.Errorf(sdk.ReasonUnsupported, "nothing can be mounted at %s in the sandbox", m.Target)
			}
		}
	}
	return nil
}

// push sends what the sandbox is to see, and unpacks it there. An archive that arrived damaged without an error is sent
// again, once.
func (s *sandbox) push(ctx context.Context) error {
	packed, err := s.deliver(ctx)
	var e *scriptError
	if errors.As(err, &e) && e.code == scripts.Damaged {
		packed, err = s.deliver(ctx)
	}
	if err != nil {
		return s.setupError(err)
	}
	s.base = &base{}
	if packed == nil {
		s.base.Entries, err = s.place(ctx)
		return err
	}
	s.base.Archive = packed.sum()
	if packed.left > 0 {
		note := fmt.Sprintf("%d sockets, devices and files that cannot be read were not sent", packed.left)
		s.ready.Notes = append(s.ready.Notes, note)
	}
	if s.base.Entries, err = s.place(ctx); err != nil {
		return err
	}
	return packed.verify(s.base.Entries)
}

// deliver sends the archive, if there is anything to send, and sets the machine up with it.
func (s *sandbox) deliver(ctx context.Context) (packed *packer, err error) {
	list := parts(&s.spec)
	archive, size, sum := "-", int64(0), "-"
	if len(list) > 0 {
		if packed, archive, err = s.send(ctx, list); err != nil {
			return nil, err
		}
		size, sum = packed.size, packed.sum()
	}
	args := []string{
		basePath, s.user(), workspacePath, s.ready.Output, archive, strconv.FormatInt(size, 10), sum,
	}
	for _, p := range list {
		if p.target != "" {
			args = append(args, p.member, p.target)
		}
	}
	s.report("unpacking", 0, 0)
	return packed, s.sh(ctx, "set the machine up", rootUser, scripts.Setup, nil, args...)
}

// user is whom commands run as.
func (s *sandbox) user() string { return cmp.Or(configOf(&s.spec).User, "user") }

// place unpacks the workspace, and lists what is there.
func (s *sandbox) place(ctx context.Context) (map[string]entry, error) {
	args := append([]string{basePath, yesNo(s.spec.Workspace.Source != ""), workspacePath}, s.besides()...)
	var l listing
	script := scripts.Place + "shift 2\n" + scripts.List
	err := s.repeated(ctx, func() error {
		l = listing{}
		return s.sh(ctx, "unpack the workspace", s.user(), script, l.write, args...)
	})
	if err != nil {
		return nil, err
	}
	return l.entries(".")
}

// setupError says what a template lacks.
func (s *sandbox) setupError(err error) error {
	var e *scriptError
	if !errors.As(err, &e) {
		return err
	}
	lacks := func(attribute, what, fix string) error {
		summary := fmt.Sprintf("the template %s %s", configOf(&s.spec).Template, what)
		return &sdk.Error{Reason: sdk.ReasonConfig, Path: attribute, Summary: summary, Fix: fix}
	}
	switch e.code {
	case scripts.NoTools:
		return lacks("template", "lacks "+strings.TrimSpace(e.stderr), "add them to the template; E2B's own base has them")
	case scripts.NoUser:
		return lacks("user", "has no user "+s.user(), "set user in the backend block to one that it has")
	case scripts.Damaged:
		return sdk.Errorf(sdk.ReasonUnavailable, "what arrived in the machine is not what was sent: %s", e.stderr).
			WithFix("try again")
	}
	return err
}

// send packs the parts on the way to the machine, and returns where they are there. When the connection breaks it
// begins again, up to twice and under another name: the daemon may still be writing what it was sent before.
func (s *sandbox) send(ctx context.Context, list []part) (*packer, string, error) {
	total, err := measure(ctx, list)
	if err != nil {
		return nil, "", err
	}
	for n := 1; ; n++ {
		to := basePath + "/push." + rand.Text()
		files := &progress{step: "sending files", total: total, report: s.report}
		p := &packer{list: list, hash: sha256.New(), files: files, entries: map[string]entry{}}
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
	writeErr, err := piped(ctx, write, func(r io.Reader) error { return d.Upload(ctx, to, user, r) })
	if writeErr != nil {
		return writeErr // why the upload ended
	}
	s.lost(err)
	return err
}
