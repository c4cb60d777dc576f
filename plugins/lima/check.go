package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	goversion "github.com/hashicorp/go-version"

	"github.com/hutch-run/hutch/plugins/lima/internal/limaout"
	"github.com/hutch-run/hutch/sdk"
)

// minimumLima is the oldest Lima that has what the instance file asks for.
const minimumLima = "2.0.0"

// Check implements [sdk.Backend]. It starts no VM: that takes a minute, and a first one an image.
func (b *backend) Check(ctx context.Context) ([]sdk.Finding, error) {
	var out []sdk.Finding
	l, err := b.limactl()
	if err != nil {
		return []sdk.Finding{failed("limactl", err)}, nil
	}
	raw, err := l.call(ctx, nil, "info")
	if err != nil {
		return append(out, failed("limactl", err)), nil
	}
	var info struct {
		Version  string   `json:"version"`
		VMTypes  []string `json:"vmTypes"`
		LimaHome string   `json:"limaHome"`
	}
	if err := json.Unmarshal(raw, &info); err != nil {
		return append(out, failed("limactl", fmt.Errorf("read what limactl info prints: %w", err))), nil
	}
	out = append(out, checkVersion(l.path, info.Version))
	out = append(out, sdk.Finding{Name: "vm types", Status: sdk.SeverityOK, Detail: strings.Join(info.VMTypes, ", ") + ", in " + info.LimaHome})
	if path, err := inPath("ssh", "install the OpenSSH client, which limactl needs too"); err != nil {
		out = append(out, failed("ssh", err))
	} else {
		out = append(out, sdk.Finding{Name: "ssh", Status: sdk.SeverityOK, Detail: path})
	}
	if bin, err := findGuestProgram(); err != nil {
		out = append(out, failed("guest program", err))
	} else {
		out = append(out, sdk.Finding{Name: "guest program", Status: sdk.SeverityOK, Detail: bin.host})
	}
	return append(out, b.checkVM(ctx, l)), nil
}

func checkVersion(path, v string) sdk.Finding {
	f := sdk.Finding{Name: "limactl", Status: sdk.SeverityOK, Detail: path + " " + v}
	got, err := goversion.NewVersion(strings.TrimPrefix(v, "v"))
	if err != nil {
		f.Detail += " (built without its version)"
		return f
	}
	if got.Core().LessThan(goversion.Must(goversion.NewVersion(minimumLima))) {
		f.Status, f.Fix = sdk.SeverityError, "install Lima "+minimumLima+" or newer: https://lima-vm.io/docs/installation/"
	}
	return f
}

// checkVM says how the VM of runs that name none is.
func (b *backend) checkVM(ctx context.Context, l *limactl) sdk.Finding {
	name := configOf(&sdk.Spec{}).Instance
	f := sdk.Finding{Name: "vm " + name, Status: sdk.SeverityOK}
	i, err := l.list(ctx, name)
	switch {
	case err != nil:
		return failed(f.Name, err)
	case i == nil:
		f.Detail = "none yet; the first run makes it, and downloads an image for it"
	case i.Status != limaout.StatusRunning && i.Status != limaout.StatusStopped:
		f.Status, f.Detail, f.Fix = sdk.SeverityWarning, i.Status+": "+strings.Join(i.Errors, "; "), "the next run stops it by force and starts it again"
	default:
		f.Detail = i.Status
	}
	return f
}

func failed(name string, err error) sdk.Finding {
	f := sdk.Finding{Name: name, Status: sdk.SeverityError, Detail: err.Error()}
	var e *sdk.Error
	if errors.As(err, &e) {
		f.Detail, f.Fix = e.Summary, e.Fix
	}
	return f
}
