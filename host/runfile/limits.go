package runfile

import (
	"fmt"
	"math"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/units"
)

var limitsSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{
	{Name: "timeout"}, {Name: "memory"}, {Name: "cpus"}, {Name: "pids"}, {Name: "disk"}, {Name: "files"}, {Name: "output"}, {Name: "output_total"},
}}

// limits reads the limits block.
func (s *scope) limits(d *Definition, blocks hcl.Blocks) {
	b := s.single(blocks)
	if b == nil {
		return
	}
	in := s.in("limits")
	c, _ := in.body(in.expand(b.Body), limitsSchema, "a limits block", b.DefRange)
	if c == nil {
		return
	}
	const aDuration, aSize = `a duration such as "30s"`, `a size such as "512MiB"`
	d.Limits.Timeout, _ = united(in, c, "timeout", "limits.timeout", aDuration, units.ParseDuration)
	d.Limits.Memory, _ = united(in, c, "memory", "limits.memory", aSize, units.ParseSize)
	d.Limits.Disk, _ = united(in, c, "disk", "limits.disk", aSize, units.ParseSize)
	d.Limits.Output, _ = united(in, c, "output", "limits.output", aSize, units.ParseSize)
	d.Limits.OutputTotal, _ = united(in, c, "output_total", "limits.output_total", aSize, units.ParseSize)
	d.Limits.PIDs, _ = in.integer(c, "pids", "limits.pids", 1, math.MaxInt32)
	d.Limits.Files, _ = in.integer(c, "files", "limits.files", 16, math.MaxInt32)
	if f, ok := in.number(c, "cpus", "limits.cpus"); ok {
		cpus, _ := f.Float64()
		if cpus < 0.01 || cpus > 4096 {
			in.error(c.Attributes["cpus"].Expr.Range(), fmt.Sprintf("cpus must be a number from 0.01 to 4096, not %s", f.Text('g', 15)), "1.5 means one and a half processors.", "")
			return
		}
		d.Limits.CPUs = cpus
	}
}
