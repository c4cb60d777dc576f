package runfile

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
)

// Limits is what a run asks for. Zero means not asked for. Its fields are the one table of limits, in the order in
// which they are reported: json has the name in run files, records and results; help, short, name and placeholder
// describe the flag of commands that embed it; noun follows a value in text, and least is the smallest number.
type Limits struct {
	Timeout     units.Duration `json:"timeout,omitzero" noun:"of wall time" placeholder:"30s" help:"Wall time of each command, as Go writes durations: 250ms, 30s, 1m30s, 2h (default 10 minutes, none with a terminal)."`
	Memory      units.Size     `json:"memory,omitzero" noun:"of memory" short:"m" placeholder:"512m" help:"Memory of all processes together."`
	CPUs        float64        `json:"cpus,omitzero" noun:"processors" least:"0.01" name:"cpus" type:"share" placeholder:"1.5" help:"Processors, all processes together."`
	PIDs        int64          `json:"pids,omitzero" noun:"processes and threads" least:"1" name:"pids-limit" aliases:"pids" type:"count" placeholder:"64" help:"Processes and threads at once."`
	Disk        units.Size     `json:"disk,omitzero" noun:"written to disk" placeholder:"1g" help:"Bytes that may be written to the workspace, the output and temporary directories."`
	Files       int64          `json:"files,omitzero" noun:"open files" least:"16" type:"count" placeholder:"256" help:"Open file descriptors of each process."`
	Output      units.Size     `json:"output,omitzero" noun:"kept of each stream" name:"output-limit" placeholder:"16m" help:"Bytes kept of each of stdout and stderr: the last ones. More is counted and dropped."`
	OutputTotal units.Size     `json:"output_total,omitzero" noun:"printed" kong:"-"`
}

// The limits that hutch holds itself, whatever the backend.
const (
	LimitOutput      sdk.Limit = "output"
	LimitOutputTotal sdk.Limit = "output_total"
)

// Limit is one field of Limits.
type Limit struct {
	Name sdk.Limit // as run files, results and the wire spell it
	Flag string    // such as --memory; "" for none
	Noun string    // what follows a value: 512MiB "of memory"

	field int
	least float64 // of a number
}

// AllLimits has the fields of Limits in order.
var AllLimits = func() (all []Limit) {
	t := reflect.TypeFor[Limits]()
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		l := Limit{Name: sdk.Limit(name), Noun: tag.Get("noun"), field: i}
		l.least, _ = strconv.ParseFloat(tag.Get("least"), 64) // 0 without one
		if flag, ok := tag.Lookup("name"); ok {
			l.Flag = "--" + flag
		} else if tag.Get("kong") != "-" {
			l.Flag = "--" + name
		}
		all = append(all, l)
	}
	return all
}()

// LimitIndex is the place of a limit in AllLimits, -1 for an unknown one.
func LimitIndex(name sdk.Limit) int {
	return slices.IndexFunc(AllLimits, func(l Limit) bool { return l.Name == name })
}

// Path leads to the limit in a run block, as for [Definition.RangeOf].
func (l Limit) Path() string { return "limits." + string(l.Name) }

// ByHost reports whether hutch holds the limit itself.
func (l Limit) ByHost() bool { return l.Name == LimitOutput || l.Name == LimitOutputTotal }

func (l Limit) of(x *Limits) reflect.Value { return reflect.ValueOf(x).Elem().Field(l.field) }

// Text is what x asks for, as a run file writes it, such as 30s, 512MiB or 1.5; "" for nothing.
func (l Limit) Text(x Limits) string {
	if v := l.of(&x); !v.IsZero() {
		return fmt.Sprint(v)
	}
	return ""
}

// Override takes what o asks for instead, and returns which limits those are.
func (x *Limits) Override(o Limits) (changed []Limit) {
	for _, l := range AllLimits {
		if v := l.of(&o); !v.IsZero() {
			l.of(x).Set(v)
			changed = append(changed, l)
		}
	}
	return changed
}

var limitsSchema = func() *hcl.BodySchema {
	s := &hcl.BodySchema{}
	for _, l := range AllLimits {
		s.Attributes = append(s.Attributes, hcl.AttributeSchema{Name: string(l.Name)})
	}
	return s
}()

// limits reads the limits block.
func (b *block) limits(d *Definition) {
	in := b.openOnly("limits", limitsSchema)
	if in == nil {
		return
	}
	for _, l := range AllLimits {
		name := string(l.Name)
		switch v := l.of(&d.Limits).Addr().Interface().(type) {
		case *units.Duration:
			*v = in.duration(name)
		case *units.Size:
			*v = in.size(name)
		case *float64:
			*v, _ = in.number(name, l.least, 4096, "1.5 means one and a half processors.")
		case *int64:
			*v, _ = in.integer(name, int64(l.least), math.MaxInt32)
		}
	}
}
