package run

import (
	"context"

	"github.com/hutch-run/hutch/host/runfile"
)

// Unable is a backend on which a run is not executed, although every able one was asked for.
type Unable struct {
	Run, Backend string
	Reasons      []string
}

// OnEach returns one copy of each run per backend that is able to execute it: of those that the run names or, where it
// names none, of installed. Their instance names end in " on NAME". Backends that are not able are listed apart; a run
// that no backend can execute is returned as it is, so that it is refused with the reasons.
func (r *Runner) OnEach(ctx context.Context, ds []*runfile.Definition, installed []string) (out []*runfile.Definition,
	unable []Unable, err error) {
	for _, d := range ds {
		if len(d.Backends) == 0 {
			d = Overrides{Backends: installed}.Apply(d)
		}
		c, err := r.choose(ctx, d, false, true)
		if err != nil {
			return nil, nil, err
		}
		found := false
		for i, cand := range c.candidates {
			if len(cand.Reasons) > 0 {
				unable = append(unable, Unable{d.Instance, cand.Name, cand.Reasons})
				continue
			}
			on := *d
			on.Backends = []*runfile.Backend{d.Backends[i]}
			on.Instance = d.Instance + " on " + cand.Name
			out, found = append(out, &on), true
		}
		if !found {
			out = append(out, d)
		}
	}
	return out, unable, nil
}
