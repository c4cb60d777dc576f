package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/units"
)

type (
	duration = units.Duration
	size     = units.Size
)

// numbers read the limits that are numbers. Zero is refused: it would read as none, and mean no limit.
var numbers = []kong.Option{numberMapper("count", parseCount), numberMapper("share", parseShare)}

func numberMapper[T any](name string, parse func(string) (T, error)) kong.Option {
	return kong.NamedMapper(name, kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("number", &text); err != nil {
			return err
		}
		n, err := parse(text)
		target.Set(reflect.ValueOf(n))
		return err
	}))
}

func parseCount(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number", text)
	case n < 1:
		return 0, fmt.Errorf("%q is less than one; leave the flag out for the default", text)
	}
	return n, nil
}

func parseShare(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(n) || math.IsInf(n, 0):
		return 0, fmt.Errorf("%q is not a number", text)
	case n <= 0:
		return 0, fmt.Errorf("%q is not more than zero; leave the flag out for the default", text)
	}
	return n, nil
}

// mount is DIR[:MODE], the workspace of a run without a file.
type mount struct{ dir, mode string }

func (m *mount) UnmarshalText(text []byte) error {
	m.dir, m.mode = string(text), "private"
	if i := strings.LastIndexByte(m.dir, ':'); i >= 0 {
		switch mode := m.dir[i+1:]; mode {
		case "private", "shared", "readonly":
			m.dir, m.mode = m.dir[:i], mode
		case "ro":
			m.dir, m.mode = m.dir[:i], "readonly"
		case "rw":
			return fmt.Errorf(`":rw" is not a mode: write :shared for writes that land on the host at once, or :private (default) to keep them in the sandbox`)
		default:
			if !strings.Contains(mode, "/") {
				return fmt.Errorf("%q is not a workspace mode: private, shared or readonly", mode)
			}
		}
	}
	if m.dir == "" {
		return fmt.Errorf("the directory is missing; write DIR[:private|shared|readonly]")
	}
	return nil
}

// mountFlags show further directories of this machine.
type mountFlags struct {
	Mount []hostDir `sep:"none" placeholder:"DIR:PATH[:MODE]" help:"Show DIR at PATH of the sandbox, besides what the run file mounts. MODE readonly (default), or writable: what is written lands in DIR at once, without review. Repeatable." complete:"dir"`
}

func (f *mountFlags) mounts() (out []runfile.Mount) {
	for _, m := range f.Mount {
		out = append(out, runfile.Mount(m))
	}
	return out
}

// hostDir is DIR:PATH[:MODE].
type hostDir runfile.Mount

func (m *hostDir) UnmarshalText(text []byte) error {
	dir, rest, ok := strings.Cut(string(text), ":")
	target, mode, _ := strings.Cut(rest, ":")
	switch {
	case !ok || dir == "":
		return fmt.Errorf("%q is not DIR:PATH[:readonly|writable], such as .:/src", text)
	case mode == "" || mode == "ro":
		mode = runfile.MountReadOnly
	case mode == "rw":
		mode = runfile.MountWritable
	case mode != runfile.MountReadOnly && mode != runfile.MountWritable:
		return fmt.Errorf("%q is not a mode of a mount: readonly or writable", mode)
	}
	source, err := filepath.Abs(dir)
	if err == nil {
		err = runfile.CheckMountTarget(target)
	}
	if err == nil {
		var st os.FileInfo
		if st, err = os.Stat(source); err == nil && !st.IsDir() {
			err = fmt.Errorf("%s is not a directory", dir)
		}
	}
	*m = hostDir{Target: target, Source: source, Mode: mode}
	return err
}

// networkFlags say what the commands of a sandbox reach.
type networkFlags struct {
	Network   string   `placeholder:"MODE" help:"none (default), full, or allow=RULE,RULE, which is --allow-host RULE for each." complete:"none|full|allow="`
	AllowHost []string `sep:"none" placeholder:"RULE" help:"Reach this name, *.name, address or range of addresses, each with an optional :PORT, over TCP, and nothing else but what the run file allows. Repeatable."`
}

func (f *networkFlags) network() (network.Network, error) {
	return network.FromFlags(f.Network, f.AllowHost)
}

// secretFlags name values of this machine that commands use without seeing them.
type secretFlags struct {
	Secret []string `sep:"none" placeholder:"NAME=env@HOST" help:"Give commands a placeholder in the variable NAME, which becomes the value of this machine's variable NAME in requests to HOST, and allow HOST:443. NAME=env:OTHER@HOST takes another variable, NAME=file:PATH@HOST a file; HOST,HOST for several. Repeatable."`
}

type budgetFlags struct {
	Budget []string `sep:"none" placeholder:"WHAT=N" help:"Answer 402 to requests to the hosts of the secrets once one command has used so much: requests=200, tokens=2000000, or cost=5, by --price. What they used is in its record. Repeatable."`
	Price  []string `sep:"none" placeholder:"MODEL=IN/OUT" help:"What a million tokens of input and output cost, and with /READ/WRITE those read from and written to a cache; a star in MODEL stands for any characters. Repeatable."`
}

// project is NAME[:MODE], a shared project as a workspace.
type project struct{ name, mode string }

func (p *project) UnmarshalText(text []byte) error {
	name, mode, ok := strings.Cut(string(text), ":")
	switch mode {
	case "":
		if ok {
			return fmt.Errorf("the mode is missing; write NAME[:private|shared|readonly]")
		}
		mode = "private"
	case "private", "shared", "readonly":
	default:
		return fmt.Errorf("%q is not a workspace mode: private, shared or readonly", mode)
	}
	p.name, p.mode = name, mode
	return store.CheckName(name)
}

func (m *mount) String() string { return m.dir + ":" + m.mode }
