package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/termsafe"
)

// table is the table of the runs that are going on, as a person watches it. It is safe for concurrent use.
type table struct {
	mu   sync.Mutex
	runs []*going // in the order in which they began
}

type going struct {
	name, backend, step string
	since               time.Time

	pid    int    // of a process below which its commands run; 0 when that is not known
	memory string // that they have
	looked time.Time
}

// lookEvery is the time between two looks at the memory of a run.
const lookEvery = time.Second

// look finds out how much memory a run has.
func (g *going) look(now time.Time) {
	if g.pid <= 1 || now.Sub(g.looked) < lookEvery {
		return
	}
	g.looked = now
	g.memory = humanize.IBytes(run.Memory(g.pid))
}

// drawEvery is the time between two tables.
const drawEvery = 200 * time.Millisecond

// begin adds a run, or begins another attempt of it.
func (t *table) begin(d *runfile.Definition, now time.Time) {
	t.end(d.Instance)
	var backends []string
	for _, b := range d.Backends {
		backends = append(backends, b.Name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs = append(t.runs, &going{name: d.Instance, backend: strings.Join(backends, " or "), since: now})
}

// step says what a run is doing; nothing is the program itself, which may be below a process.
func (t *table) step(name, step, pid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.runs {
		if g.name == name {
			g.step = step
			if n, err := strconv.Atoi(pid); err == nil {
				g.pid = n
			}
		}
	}
}

func (t *table) end(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs = slices.DeleteFunc(t.runs, func(g *going) bool { return g.name == name })
}

// rows are at most so many lines of what runs, those first that run longest.
func (t *table) rows(now time.Time, most int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	wide := 0
	for _, g := range t.runs {
		wide = max(wide, termsafe.Columns(termsafe.Line(g.name)))
	}
	var out []string
	for i, g := range t.runs {
		if len(out) == most-1 && len(t.runs) > most {
			return append(out, fmt.Sprintf("  and %d more", len(t.runs)-i))
		}
		name := termsafe.Line(g.name)
		g.look(now)
		row := fmt.Sprintf("  %s%s  %6s  %8s  %s  %s", name, strings.Repeat(" ", wide-termsafe.Columns(name)),
			now.Sub(g.since).Round(time.Second), g.memory, termsafe.Line(g.backend), termsafe.Line(g.step))
		out = append(out, strings.TrimRight(row, " "))
	}
	return out
}
