package main

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/pgzip"

	"github.com/hutch-run/hutch/plugins/e2b/internal/ignore"
	"github.com/hutch-run/hutch/plugins/e2b/scripts"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/tree"
)

// The members of the archive that is sent.
const (
	workspaceMember = "workspace"
	inputMember     = "input"
)

// gzipLevel trades the host's processors for the way to the service; higher ones cost more than they save.
const gzipLevel = 3

// part is one directory of this host that is sent.
type part struct {
	member   string // its name in the archive
	source   string
	readOnly bool // nobody but root may write to it there
	git      bool // what .gitignore names is left behind
	hutch    bool // what .hutchignore names is
	hide     []string
	target   string // where it is unpacked; "" for the workspace and the input, which have places of their own
}

// parts are what a sandbox of spec is to see of this host.
func parts(spec *sdk.Spec) (out []part) {
	if spec.Workspace.Source != "" {
		out = append(out, part{member: workspaceMember, source: spec.Workspace.Source, git: configOf(spec).GitIgnore, hutch: true, hide: besides(spec)})
	}
	if spec.Input != "" {
		out = append(out, part{member: inputMember, source: spec.Input, readOnly: true})
	}
	for i, m := range spec.Mounts {
		out = append(out, part{member: "mount" + strconv.Itoa(i), source: m.Source, readOnly: true, target: m.Target})
	}
	return out
}

// besides are the names at the workspace's top that are no part of it.
func besides(spec *sdk.Spec) []string {
	if spec.Input != "" {
		return []string{"output", "input"}
	}
	return []string{"output"}
}

// checkMounts refuses mounts that a copy cannot stand for, and places that are not free.
func checkMounts(spec *sdk.Spec) error {
	for _, m := range spec.Mounts {
		switch {
		case !m.ReadOnly:
			return sdk.Errorf(sdk.ReasonUnsupported, "e2b has no mount that can be written to: %s is on this host, and the sandbox is not", m.Source).
				WithFix("make the mount read-only, and use the workspace for what is to come back")
		case !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || strings.ContainsFunc(m.Target, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return sdk.Errorf(sdk.ReasonConfig, "the target %q of a mount is no clean absolute path", m.Target)
		}
		for _, own := range []string{workspacePath, basePath, "/proc", "/sys", "/dev"} {
			if m.Target == "/" || m.Target == own || strings.HasPrefix(m.Target, own+"/") {
				return sdk.Errorf(sdk.ReasonUnsupported, "nothing can be mounted at %s in the sandbox", m.Target)
			}
		}
	}
	return nil
}

// base is what the workspace was when no command had run yet.
type base struct {
	Archive string           // hash of what was sent; "" when nothing was
	Entries map[string]entry // of the workspace, by path
}

// savedBase is a base as it lies on the host's disk. Paths and targets are bytes: JSON's texts take Unicode only.
type savedBase struct {
	Archive string       `json:"archive,omitempty"`
	Entries []savedEntry `json:"entries"`
}

type savedEntry struct {
	Path []byte `json:"path"`
	Link []byte `json:"link,omitempty"`
	entry
}

// MarshalJSON implements [json.Marshaler].
func (b *base) MarshalJSON() ([]byte, error) {
	out := savedBase{Archive: b.Archive, Entries: []savedEntry{}}
	for name, e := range b.Entries {
		out.Entries = append(out.Entries, savedEntry{[]byte(name), []byte(e.Link), e})
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (b *base) UnmarshalJSON(data []byte) error {
	var in savedBase
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	b.Archive, b.Entries = in.Archive, make(map[string]entry, len(in.Entries))
	for _, e := range in.Entries {
		e.entry.Link = string(e.Link)
		b.Entries[string(e.Path)] = e.entry
	}
	return nil
}

// push sends what the sandbox is to see, and has it put into place.
func (s *sandbox) push(ctx context.Context) error {
	list := parts(&s.spec)
	archive, size, sum := "-", int64(0), "-"
	var packed *packer
	if len(list) > 0 {
		var err error
		if packed, archive, err = s.send(ctx, list); err != nil {
			return err
		}
		size, sum = packed.size, packed.sum()
	}
	input, rest := "-", []string(nil)
	for _, p := range list {
		switch {
		case p.member == inputMember:
			input = inputPath
		case p.target != "":
			rest = append(rest, p.member, p.target)
		}
	}
	s.tell("unpacking", 0, 0)
	args := append([]string{basePath, s.user(), workspacePath, input, archive, strconv.FormatInt(size, 10), sum}, rest...)
	if err := s.sh(ctx, "set the machine up", rootUser, scripts.Setup, nil, args...); err != nil {
		return s.setupFailed(err)
	}
	s.base = &base{}
	if packed != nil {
		s.base.Archive = sum
	}
	var err error
	if s.base.Entries, err = s.place(ctx, packed != nil); err != nil {
		return err
	}
	if packed != nil {
		return packed.verify(s.base.Entries)
	}
	return nil
}

// user is whom commands run as.
func (s *sandbox) user() string { return or(configOf(&s.spec).User, "user") }

// place unpacks the workspace, and lists it.
func (s *sandbox) place(ctx context.Context, archive bool) (map[string]entry, error) {
	from := "-"
	for _, p := range parts(&s.spec) {
		if archive && p.member == workspaceMember {
			from = "yes"
		}
	}
	l := newListing()
	args := append([]string{basePath, workspacePath, from}, besides(&s.spec)...)
	script := scripts.Place + `set -- "$w" "$@"` + "\n" + scripts.List
	if err := s.sh(ctx, "unpack the workspace", s.user(), script, l.write, args...); err != nil {
		return nil, err
	}
	return l.entries()
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

// send packs the parts and sends them while it does, and says where they are. A connection that breaks makes it begin anew,
// twice, and elsewhere: nobody knows when the daemon has done with what it was sent before.
func (s *sandbox) send(ctx context.Context, list []part) (*packer, string, error) {
	total, err := measure(ctx, list)
	if err != nil {
		return nil, "", err
	}
	for n := 1; ; n++ {
		to := basePath + "/push." + rand.Text()
		p := &packer{list: list, hash: sha256.New(), total: total, tell: s.tell, entries: map[string]entry{}}
		err := s.upload(ctx, to, rootUser, p.write)
		if err == nil {
			if p.left > 0 {
				s.ready.Notes = append(s.ready.Notes, fmt.Sprintf("%d sockets, devices and files that cannot be read were not sent", p.left))
			}
			return p, to, nil
		}
		if p.err != nil || ctx.Err() != nil || n == 3 || !again(err) {
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

var errNobodyReads = errors.New("nobody reads any more")

// packer writes the archive.
type packer struct {
	list        []part
	hash        hash.Hash
	size, total int64
	done        int64 // bytes of files so far
	tell        func(step string, done, total int64)
	left        int              // entries that were left out
	entries     map[string]entry // of the workspace
	err         error            // what of this host was in the way
}

func (p *packer) sum() string { return hex.EncodeToString(p.hash.Sum(nil)) }

// write writes the archive to w.
func (p *packer) write(ctx context.Context, w io.Writer) error {
	zip, err := pgzip.NewWriterLevel(io.MultiWriter(w, p.hash, (*counter)(&p.size)), gzipLevel)
	if err != nil {
		return err
	}
	out := tar.NewWriter(zip)
	for _, one := range p.list {
		if err := p.part(ctx, out, one); err != nil {
			if !errors.Is(err, errNobodyReads) && !errors.Is(err, io.ErrClosedPipe) {
				p.err = err
			}
			return errors.Join(err, zip.Close())
		}
	}
	return errors.Join(out.Close(), zip.Close())
}

// counter counts bytes.
type counter int64

// Write implements [io.Writer].
func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// skip says what of a part stays behind.
func (one part) skip(root *os.Root) (skip func(string, bool) bool, err func() error) {
	var names []string
	if one.git {
		names = append(names, ignore.Git)
	}
	if one.hutch {
		names = append(names, ignore.Hutch)
	}
	rules := ignore.New(root, names...)
	return func(p string, isDir bool) bool {
		for _, h := range one.hide {
			if p == h {
				return true
			}
		}
		return len(names) > 0 && rules.Skip(p, isDir)
	}, rules.Err
}

// part adds one directory to the archive, as tree.Pack packs it, with another name and what is to be known of it.
func (p *packer) part(ctx context.Context, out *tar.Writer, one part) error {
	root, err := os.OpenRoot(one.source)
	if err != nil {
		return sdk.Errorf(sdk.ReasonConfig, "%s cannot be read: %w", one.source, err)
	}
	defer root.Close()
	skip, rulesErr := one.skip(root)
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		_, err := tree.Pack(ctx, root, w, tree.PackOptions{Skip: skip, Special: true, Times: true})
		err = errors.Join(err, rulesErr())
		w.CloseWithError(err)
		packed <- err
	}()
	err = p.copy(out, tar.NewReader(r), one)
	cancel()
	r.CloseWithError(errNobodyReads)
	if perr := <-packed; perr != nil && !errors.Is(perr, errNobodyReads) {
		return fmt.Errorf("pack %s: %w", one.source, perr)
	}
	return err
}

// copy adds the entries of r.
func (p *packer) copy(out *tar.Writer, r *tar.Reader, one part) error {
	mode := int64(0o755)
	if one.readOnly {
		mode = 0o555
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: one.member + "/", Mode: mode, Format: tar.FormatPAX}); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if reason, _ := tree.LeftOut(h); reason != "" {
			p.left++
			continue
		}
		name := strings.TrimSuffix(h.Name, "/")
		if one.readOnly && h.Typeflag != tar.TypeSymlink {
			h.Mode = h.Mode&0o555 | 0o444
			if h.Typeflag == tar.TypeDir {
				h.Mode |= 0o111
			}
		}
		h.Name = one.member + "/" + h.Name
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		sum := sha256.New()
		if h.Typeflag == tar.TypeReg {
			if _, err := io.CopyBuffer(io.MultiWriter(out, sum, (*progress)(p)), onlyReader{r}, buf); err != nil {
				return err
			}
		}
		if one.member == workspaceMember {
			p.entries[name] = packedEntry(h, sum)
		}
	}
}

// onlyReader hides what else a reader can, so that the buffer is used.
type onlyReader struct{ io.Reader }

// progress tells how much has been packed.
type progress packer

// Write implements [io.Writer].
func (p *progress) Write(b []byte) (int, error) {
	const step = 1 << 20
	before := p.done / step
	p.done += int64(len(b))
	if p.done/step != before {
		p.tell("sending files", min(p.done, p.total), p.total)
	}
	return len(b), nil
}

// measure says how many bytes of files the parts hold, for the progress bar.
func measure(ctx context.Context, list []part) (total int64, err error) {
	for _, one := range list {
		root, err := os.OpenRoot(one.source)
		if err != nil {
			return 0, sdk.Errorf(sdk.ReasonConfig, "%s cannot be read: %w", one.source, err)
		}
		skip, _ := one.skip(root)
		n, err := bytesBelow(ctx, root, skip)
		root.Close()
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
