package ui

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
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
	cpu, memory, list := uint64(0), uint64(0), descendants.Of(n)
	for _, p := range list {
		if st, err := procstat.Of(p); err == nil {
			cpu += st.CPU
		}
		memory += resident(p)
	}
	text := "nothing"
	if len(list) > 0 {
		text = fmt.Sprintf("%s in %s", humanize.IBytes(memory), plural(len(list), "process"))
		if pid == l.pid && cpu >= l.cpu {
			text = fmt.Sprintf("%.0f %% of a processor, %s", math.Round(float64(cpu-l.cpu)*100/ticks/took.Seconds()), text)
		}
	}
	*l = load{when: time.Now(), pid: pid, cpu: cpu, text: text}
}

// resident is the memory that a process has for itself or shares with others of the sandbox, in bytes. Pages of files
// are left out, which all of the machine share.
func resident(pid int) (n uint64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		name, value, _ := strings.Cut(string(line), ":")
		if name == "RssAnon" || name == "RssShmem" || name == "VmSwap" {
			kb, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			n += kb << 10
		}
	}
	return n
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
