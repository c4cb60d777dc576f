package run

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/sdk"
)

// publish listens on the ports of this machine that lead to ports of the sandbox. One beyond the first needed that
// is in use is left out with a note: another command of a persistent sandbox may have it.
func (j *job) publish(b *backend.Backend, needed int) error {
	ports := j.d.Network.Publish
	if len(ports) == 0 {
		return nil
	}
	j.res.Network.Publish = nil
	if !b.Facts.Has(sdk.CapDial) {
		return &sdk.Error{Reason: sdk.ReasonUnsupported, Summary: fmt.Sprintf("backend %q cannot publish ports",
			b.Facts.Name), Fix: "leave out --publish"}
	}
	for i, text := range ports {
		p, err := network.ParsePort(text)
		if err != nil {
			return err
		}
		at, err := p.Listen(j.d.Network)
		switch {
		case err != nil && i >= needed:
			j.note(err, fmt.Sprintf("publish %s", text))
			continue
		case err != nil:
			fix := ""
			if errors.Is(err, syscall.EADDRINUSE) {
				fix = fmt.Sprintf("publish another one: 0:%d takes any that is free", p.Sandbox)
			}
			return diag.Diagnostics{j.d.Diagnose("network.publish", err.Error(), "", fix)}
		}
		j.published = append(j.published, at)
		j.res.Network.Publish = append(j.res.Network.Publish, at.Port.String())
	}
	if j.s.Published != nil && len(j.published) > 0 {
		j.s.Published(j.published)
	}
	return nil
}

// unpublish ends what publish began; it may be called twice.
func (j *job) unpublish() {
	for _, p := range j.published {
		p.Close()
	}
	j.published = nil
}
