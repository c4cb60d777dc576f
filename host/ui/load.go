package ui

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/host/result"
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

// decisions says what the network decided in the last command of a sandbox. latest is locked.
func (s *Server) decisions(c *card) string {
	if c.Last == nil || c.Network.Mode != sdk.NetworkFiltered {
		return ""
	}
	text, ok := s.latest.decided[c.Last.ID]
	if ok {
		return text
	}
	if rec, err := s.store.Load(c.Last.ID); err == nil {
		if raw, err := rec.Result(); err == nil {
			if res, err := result.Decode(raw); err == nil {
				denied := len(res.Network.Denied())
				text = fmt.Sprintf("%d allowed, %d denied", len(res.Network.Traffic)-denied, denied)
			}
		}
	}
	if s.latest.decided == nil {
		s.latest.decided = map[string]string{}
	}
	s.latest.decided[c.Last.ID] = text
	return text
}
