package run

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// openEvery is how often it is looked whether a person allowed what a command was denied.
const openEvery = 200 * time.Millisecond

// decisions records what a command asks its filtered network for, as it asks, and passes on what a person allows it
// meanwhile.
type decisions struct {
	j      *job
	denied chan string // rules that would allow what was denied
	opened []string    // rules that a person gave; read once the command has ended, as is err
	mu     sync.Mutex
	err    error // of the record
}

// watchDecisions has cmd tell of its network.
func (j *job) watchDecisions(cmd *client.Command) *decisions {
	d := &decisions{j: j, denied: make(chan string, sdk.MaxTraffic)}
	cmd.Decided = func(t sdk.Traffic) {
		t = bounded(t)
		d.note(store.EventNetworkDecided, map[string]any{"name": t.Name, "port": t.Port, "allowed": t.Allowed,
			"rule": t.Rule, "reason": t.Reason, "add": t.Add})
		if _, fix := network.Denial(t); !t.Allowed && fix != "" {
			d.denied <- strings.TrimPrefix(fix, "--allow-host ")
		}
	}
	return d
}

func (d *decisions) note(typ store.EventType, data map[string]any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = errors.Join(d.err, d.j.chronicle().Event(typ, d.j.secrets.Value(data)))
}

// open passes rules on to the command until the returned function is called: those that a person wrote into the record,
// of what the command was denied, and no others. A backend that cannot allow more gets none.
func (d *decisions) open(ctx context.Context, ex *client.Exec, can bool) (end func()) {
	if !can {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { d.follow(ctx, ex) })
	return func() {
		cancel()
		following.Wait()
	}
}

func (d *decisions) follow(ctx context.Context, ex *client.Exec) {
	path := store.AllowFile(d.j.rec.Dir())
	var denied []string
	tick := time.NewTicker(openEvery)
	defer tick.Stop()
	defer os.Remove(path)
	for looks := (<-chan time.Time)(nil); ; {
		select {
		case <-ctx.Done():
			return
		case rule := <-d.denied:
			denied, looks = append(denied, rule), tick.C
		case <-looks:
			b, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(b)) {
				rule, whole := strings.CutSuffix(line, "\n")
				if whole && slices.Contains(denied, rule) && !slices.Contains(d.opened, rule) && ex.Allow(rule) == nil {
					d.opened = append(d.opened, rule)
					d.note(store.EventNetworkOpened, map[string]any{"rule": rule})
				}
			}
		}
	}
}
