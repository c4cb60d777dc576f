package ui

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/doctor"
	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
)

// machine keeps what doctor found, because its probes take seconds.
type machine struct {
	mu   sync.Mutex
	last *examined
}

type examined struct {
	When   time.Time
	Report *doctor.Report
}

func (s *Server) doctor(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	s.machine.mu.Lock()
	last := s.machine.last
	if last == nil {
		last = &examined{When: time.Now(), Report: doctor.Examine(ctx, s.store, s.pool)}
		if ctx.Err() == nil {
			s.machine.last = last
		}
	}
	s.machine.mu.Unlock()
	s.show(w, r, http.StatusOK, "doctor.html", page{Title: "Doctor", Nav: "doctor", Body: last})
}

// examine has the next page of the doctor probe the machine again.
func (s *Server) examine(w http.ResponseWriter, r *http.Request) {
	s.machine.mu.Lock()
	s.machine.last = nil
	s.machine.mu.Unlock()
	s.then(w, r, nil, "doctor")
}

// maxCompared is how many runs are compared at once.
const maxCompared = 8

// compare shows in what runs differ.
func (s *Server) compare(w http.ResponseWriter, r *http.Request) {
	ids := r.URL.Query()["run"]
	if len(ids) < 2 || len(ids) > maxCompared {
		s.missing(w, r, "runs", fmt.Errorf("%w: tick 2 to %d runs to compare, not %d", errRequest, maxCompared, len(ids)))
		return
	}
	var list []*result.Result
	for i, id := range ids {
		rec, err := s.store.Load(id)
		if err != nil {
			s.missing(w, r, "runs", err)
			return
		}
		raw, err := rec.Result()
		if err != nil {
			s.missing(w, r, "runs", fmt.Errorf("%w: run %s has no result: it is %s", errRequest, rec.ID, rec.State))
			return
		}
		one, err := result.Decode(raw)
		if err != nil {
			s.missing(w, r, "runs", err)
			return
		}
		list, ids[i] = append(list, one), rec.ID
	}
	s.show(w, r, http.StatusOK, "compare.html", page{Title: "Compare", Nav: "runs", Body: report.Among(ids, list)})
}
