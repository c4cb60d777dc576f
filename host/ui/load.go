package ui

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// loadEvery is the least time between two looks at the processes of a sandbox, in which its processor time is measured.
const loadEvery = 2 * time.Second

// load is what the processes of a sandbox used at the last look.
type load struct {
	when time.Time
	pid  string
	cpu  uint64 // clock ticks
	text string
}

// ticks is how many clock ticks a second has, for every program on Linux.
const ticks = 100

// uses has text say in a few words what the processes below pid use, "" where they are not on this machine.
func (l *load) uses(pid string) {
	took := time.Since(l.when)
	if pid == l.pid && took < loadEvery {
		return
	}
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 1 {
		*l = load{when: time.Now(), pid: pid}
		return
	}
	u, text := descendants.UsageOf(n), "nothing"
	if u.Processes > 0 {
		text = fmt.Sprintf("%s in %s", humanize.IBytes(u.Memory), plural(u.Processes, "process"))
		if pid == l.pid && u.CPU >= l.cpu {
			text = fmt.Sprintf("%.0f %% of a processor, %s", math.Round(float64(u.CPU-l.cpu)*100/ticks/took.Seconds()), text)
		}
	}
	*l = load{when: time.Now(), pid: pid, cpu: u.CPU, text: text}
}

// decisions says what the network decided in the commands that run in a sandbox, or else in the last one. latest is
// locked.
func (s *Server) decisions(c *card) string {
	if c.Network.Mode == "" || c.Network.Mode == sdk.NetworkNone {
		return ""
	}
	runs := c.Running
	if len(runs) == 0 && c.Last != nil {
		runs = []store.Info{*c.Last}
	}
	var all []sdk.Traffic
	for _, i := range runs {
		all = append(all, s.decided(i)...)
	}
	return decidedText(all)
}

// decidedText counts decisions and has the first names of them.
func decidedText(all []sdk.Traffic) string {
	var parts []string
	for _, side := range []struct {
		what    string
		allowed bool
	}{{"allowed", true}, {"denied", false}} {
		var names []string
		for _, t := range all {
			if t.Allowed == side.allowed {
				names = append(names, clipName(termsafe.Line(network.Destination(t))))
			}
		}
		if n := len(names); n > 0 {
			names = slices.Compact(names)
			text := strings.Join(names[:min(len(names), maxNames)], ", ")
			if len(names) > maxNames {
				text += ", …"
			}
			parts = append(parts, fmt.Sprintf("%d %s: %s", n, side.what, text))
		}
	}
	return strings.Join(parts, "; ")
}

const maxNames = 2 // of each kind, on a card

func clipName(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

// decided is what the network decided in a run so far. latest is locked.
func (s *Server) decided(i store.Info) []sdk.Traffic {
	path := filepath.Join(s.store.Paths().Run(i.ID), "events.jsonl")
	fi, err := os.Stat(path)
	if err != nil {
		return nil
	}
	if k, ok := s.latest.decided[i.ID]; ok && k.size == fi.Size() {
		return k.list
	}
	k := decided{size: fi.Size()}
	if rec, err := s.store.Load(i.ID); err == nil {
		k.list, _ = traffic(rec)
	}
	if s.latest.decided == nil {
		s.latest.decided = map[string]decided{}
	}
	s.latest.decided[i.ID] = k
	return k.list
}

// decided is what a network decided in a run whose chain has size bytes.
type decided struct {
	size int64
	list []sdk.Traffic
}

// traffic is what the network of a run decided so far, a line for each destination, and the rules that a person gave
// meanwhile.
func traffic(rec *store.Record) (list []sdk.Traffic, opened []string) {
	events, _ := rec.Events()
	for _, e := range events {
		switch e.Type {
		case store.EventNetworkDecided, store.EventNetworkAllowed, store.EventNetworkDenied:
			var t sdk.Traffic
			if json.Unmarshal(e.Data, &t) != nil {
				continue
			}
			at := slices.IndexFunc(list, func(o sdk.Traffic) bool {
				return o.Name == t.Name && o.Port == t.Port && o.Allowed == t.Allowed
			})
			if at < 0 && len(list) < sdk.MaxTraffic {
				list = append(list, t)
			}
		case store.EventNetworkOpened:
			var o struct{ Rule string }
			if json.Unmarshal(e.Data, &o) == nil {
				opened = append(opened, o.Rule)
			}
		}
	}
	return list, opened
}
