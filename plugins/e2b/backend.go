package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/internal/control"
	"github.com/hutch-run/hutch/plugins/e2b/internal/envd"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/registry"
)

// backend implements [sdk.Backend].
type backend struct {
	transport *http.Transport
	sleep     func(ctx context.Context, d time.Duration) error // tests replace it

	sandboxes registry.Registry[*sandbox]

	mu   sync.Mutex
	keys map[string]string // control plane -> the key that a run file gave for it; never stored
}

func newBackend() *backend {
	return &backend{transport: envd.Transport(), sleep: control.Sleep, keys: map[string]string{}}
}

// Describe implements [sdk.Backend].
func (b *backend) Describe() sdk.Description {
	return sdk.Description{
		Name:        "e2b",
		Version:     version,
		Summary:     "E2B cloud machines: a kernel of its own on somebody else's machine, the project sent as one archive",
		Isolation:   sdk.IsolationRemoteVM,
		Config:      Config{},
		Limits:      []sdk.Limit{sdk.LimitTimeout, sdk.LimitMemory, sdk.LimitCPUs, sdk.LimitDisk},
		Workspaces:  []sdk.WorkspaceMode{sdk.WorkspacePrivate},
		Networks:    []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull},
		Formats:     []sdk.Format{sdk.FormatTar, sdk.FormatFile},
		Sandbox:     (*sandbox)(nil),
		TTY:         true,
		Environment: environment,
	}
}

// Plan implements [sdk.Planner].
func (b *backend) Plan(_ context.Context, spec *sdk.Spec) (*sdk.Plan, error) {
	c := configOf(spec)
	holds := planLimits(spec.Limits, c, c.size())
	p := &sdk.Plan{Holds: holds, Notes: append(notes(spec), holds.Notes()...)}
	s, err := c.service()
	if err == nil && s.key == "" {
		err = errNoKey()
	}
	for _, err := range []error{err, checkMounts(spec)} {
		if err != nil {
			p.Diagnostics = append(p.Diagnostics, sdk.DiagnosticOf(err))
		}
	}
	return p, nil
}

// Check implements [sdk.Backend]. It looks for a key, and asks the service whether it takes it.
func (b *backend) Check(ctx context.Context) ([]sdk.Finding, error) {
	key := sdk.Finding{Name: "API key", Status: sdk.SeverityOK, Detail: envKey + " is set"}
	reach := sdk.Finding{Name: "service", Status: sdk.SeverityOK}
	report := func() ([]sdk.Finding, error) { return []sdk.Finding{key, reach}, nil }
	s, err := (&Config{}).service()
	switch {
	case err != nil:
		key.Status, key.Detail, key.Fix = sdk.SeverityWarning, err.Error(), "correct the variable, or unset it"
		reach.Status, reach.Detail, reach.Fix = sdk.SeverityWarning, "there is no address to ask", key.Fix
		return report()
	case s.key == "":
		key.Status, key.Detail, key.Fix = sdk.SeverityError, envKey+" is not set", "set "+keyPlace
		reach.Status, reach.Detail, reach.Fix = sdk.SeverityWarning, "not asked, for want of a key", "set "+envKey
		return report()
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err = control.New(s.apiURL, s.key, b.transport).Find(ctx, map[string]string{metaTag: "none"})
	if err == nil {
		reach.Detail = s.apiURL + " answers, and takes the key"
		return report()
	}
	var e *sdk.Error
	if reach.Detail = err.Error(); errors.As(typed(err, "ask the service"), &e) {
		reach.Detail = e.Summary // its fix is this check
	}
	reach.Status, reach.Fix = sdk.SeverityError, "see whether it can be reached from here, and whether it issued the key"
	return report()
}

// Create implements [sdk.Backend].
func (b *backend) Create(ctx context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	return b.sandboxes.Once(ctx, req.ID, func() (*sandbox, error) {
		s, err := b.prepare(req)
		if err != nil {
			return nil, err
		}
		if err := s.allocated(req); err != nil {
			return nil, err
		}
		err = s.make(ctx, func() error { return s.allocated(req) })
		switch {
		case err == nil:
			return s, nil
		case s.never: // so nothing has to be found
			if aerr := req.Allocated(sdk.Handle{ID: s.id}); aerr != nil {
				sdk.Log(ctx).Debug("the handle could not be withdrawn", "error", aerr)
			}
		default:
			if cerr := s.close(context.WithoutCancel(ctx)); cerr != nil {
				sdk.Log(ctx).Error("what a failed creation made could not be removed", "error", cerr)
			}
		}
		return nil, err
	})
}

// allocated gives the host the handle.
func (s *sandbox) allocated(req *sdk.CreateRequest) error {
	h, err := s.handle()
	if err != nil {
		return err
	}
	return req.Allocated(h)
}

// prepare decides how a sandbox will be; nothing exists of it yet.
func (b *backend) prepare(req *sdk.CreateRequest) (*sandbox, error) {
	at, err := configOf(&req.Spec).service()
	if err != nil {
		return nil, err
	}
	if at.key == "" {
		return nil, errNoKey()
	}
	c := configOf(&req.Spec)
	holds := planLimits(req.Limits, c, c.size())
	if err := cmp.Or(holds.Err(), checkSources(&req.Spec)); err != nil {
		return nil, err
	}
	project := req.Workspace.Source != ""
	s := &sandbox{
		backend: b, id: req.ID, owner: req.Owner, dir: req.StateDir, spec: req.Spec, keep: req.Keep,
		progress: req.Progress, key: at.key,
		at: place{Tag: newTag(), API: at.apiURL, Domain: at.domain, Daemons: at.sandboxURL},
		ready: sdk.Ready{Workspace: workspacePath, Output: guestpath.Output(project), Holds: holds,
			Notes: append(notes(&req.Spec), holds.Notes()...)},
	}
	if req.Input != "" {
		s.ready.Input = guestpath.Input(project)
	}
	b.mu.Lock()
	b.keys[at.apiURL] = at.key
	b.mu.Unlock()
	return s, nil
}

// place is what finds a machine again, besides the key. It lies on the host's disk.
type place struct {
	Machine string `json:"machine,omitempty"` // "" until the service has named it
	Tag     string `json:"tag"`
	API     string `json:"api"`
	Domain  string `json:"domain"`
	Daemons string `json:"daemons,omitempty"`
	Dir     string `json:"dir,omitempty"` // the sandbox's state directory
}

func (p place) service(key string) service {
	return service{key: key, domain: p.Domain, apiURL: p.API, sandboxURL: p.Daemons}
}

func (s *sandbox) handle() (sdk.Handle, error) {
	s.at.Dir = s.dir
	data, err := json.Marshal(s.at)
	return sdk.Handle{ID: s.id, Data: data}, err
}

// readHandle reads what handle wrote. Nothing in it is believed that would become part of an address.
func readHandle(h sdk.Handle) (p place, err error) {
	if len(h.Data) == 0 {
		return p, sdk.Errorf(sdk.ReasonNotFound, "there is no sandbox %s", h.ID)
	}
	if err := json.Unmarshal(h.Data, &p); err != nil {
		return p, sdk.Errorf(sdk.ReasonConfig, "the handle of %s is not one of e2b's: %w", h.ID, err)
	}
	if p.Tag == "" || checkURL(p.API) != nil || !control.IsDomain(p.Domain) ||
		p.Machine != "" && !control.IsID(p.Machine) || p.Daemons != "" && checkURL(p.Daemons) != nil {
		return p, sdk.Errorf(sdk.ReasonConfig, "the handle of %s is not one of e2b's", h.ID)
	}
	return p, nil
}

// keyFor returns the key for a control plane: the one that a run file of this process gave, or the environment's, which
// is for the environment's own address only.
func (b *backend) keyFor(api string) (string, error) {
	b.mu.Lock()
	key := b.keys[api]
	b.mu.Unlock()
	if key != "" {
		return key, nil
	}
	s, err := (&Config{}).service()
	switch {
	case err != nil:
		return "", err
	case s.key == "":
		return "", sdk.Errorf(sdk.ReasonDenied, "there is no API key for %s",
			api).WithFix("set %s to it; the key of a run file is not stored", envKey)
	case s.apiURL != api:
		return "", sdk.Errorf(sdk.ReasonDenied, "the sandbox is at %s, and %s is for %s", api, envKey, s.apiURL).
			WithFix("set %s=%s, and %s to a key for it", envAPIURL, api, envKey)
	}
	return s.key, nil
}

// Attach implements [sdk.Attacher]. A machine that is paused stays so until something is to be done in it.
func (b *backend) Attach(ctx context.Context, h sdk.Handle) (sdk.Sandbox, error) {
	at, err := readHandle(h)
	if err != nil {
		return nil, err
	}
	return b.sandboxes.Once(ctx, h.ID, func() (*sandbox, error) {
		key, err := b.keyFor(at.API)
		if err != nil {
			return nil, err
		}
		s := &sandbox{backend: b, id: h.ID, dir: cmp.Or(h.StateDir, at.Dir), keep: true, key: key, at: at}
		if at.Machine == "" {
			return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s was never made", h.ID)
		}
		if _, err := s.client().Get(ctx, at.Machine); err != nil {
			return nil, typed(err, "find the machine of "+h.ID)
		}
		if err := s.load(); err != nil {
			return nil, err
		}
		return s, s.endOrphans(ctx)
	})
}

// Destroy implements [sdk.Backend].
func (b *backend) Destroy(ctx context.Context, h sdk.Handle) error {
	here, err := b.sandboxes.End(ctx, h.ID, func(s *sandbox) error { return s.close(ctx) })
	if here || err != nil {
		b.transport.CloseIdleConnections() // the service may not be needed for long
		return err
	}
	if len(h.Data) == 0 {
		return nil
	}
	at, err := readHandle(h)
	if err != nil {
		return err
	}
	key, err := b.keyFor(at.API)
	if err != nil {
		return err
	}
	return (&sandbox{backend: b, id: h.ID, dir: cmp.Or(h.StateDir, at.Dir), at: at, key: key}).close(ctx)
}

// List implements [sdk.Lister]. It asks the service of the environment. Without a key it lists nothing: gc must not
// fail for a service that its user does not have.
func (b *backend) List(ctx context.Context, owner string) ([]sdk.Handle, error) {
	s, err := (&Config{}).service()
	if err != nil {
		return nil, err
	}
	if s.key == "" {
		sdk.Log(ctx).Debug("machines were not looked for, for want of a key")
		return nil, nil
	}
	filter := map[string]string{}
	if owner != "" {
		filter[metaOwner] = owner
	}
	found, err := control.New(s.apiURL, s.key, b.transport).Find(ctx, filter)
	if err != nil {
		return nil, typed(err, "list the machines")
	}
	var out []sdk.Handle
	for _, d := range found {
		id, tag := d.Metadata[metaID], d.Metadata[metaTag]
		if id == "" || tag == "" {
			continue // not made by hutch
		}
		data, err := json.Marshal(place{Machine: d.ID, Tag: tag, API: s.apiURL, Domain: s.domain, Daemons: s.sandboxURL})
		if err != nil {
			return nil, fmt.Errorf("write the handle of %s: %w", id, err)
		}
		out = append(out, sdk.Handle{ID: id, Data: data})
	}
	return out, nil
}

// checkSources refuses directories that cannot be sent, before anything is made.
func checkSources(spec *sdk.Spec) error {
	if err := checkMounts(spec); err != nil {
		return err
	}
	for _, p := range parts(spec) {
		if err := sdk.NeedDirectory(strings.TrimRight(p.member, "0123456789"), p.source); err != nil {
			return err
		}
	}
	return nil
}
