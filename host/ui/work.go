package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
)

const (
	actTime  = 10 * time.Minute       // bounds an action: a sandbox may have a machine to boot
	patience = time.Second            // how long an answer waits for an action to end; then the pages show how far it is
	stepTime = 200 * time.Millisecond // at least, between two steps that are shown
	maxWorks = 32                     // at once
)

// errCancelled is why a work's context ended.
var errCancelled = errors.New("cancelled from the page")

// work is an action or a command that was started from the page and goes on. Its fields are guarded by works.mu.
type work struct {
	ID      string // of a command, its run's
	Title   string // what is done, such as "reset left"; "" for a command, which has a page
	Began   time.Time
	Step    string // the latest that was reported
	shown   time.Time
	stopped bool
	cancel  context.CancelCauseFunc
}

// works are all of them. Every window shows the same ones.
type works struct {
	mu      sync.Mutex
	list    []*work // oldest first
	changes int     // counts what a page shows of them
	closed  bool
	wg      sync.WaitGroup
	changed chan struct{} // has a value when the overview is to be made again
}

// begin adds a work, whose context ends when it is cancelled, and not with ctx.
func (s *works) begin(ctx context.Context, id, title string) (context.Context, *work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.list) >= maxWorks {
		return nil, nil, fmt.Errorf("%d actions and commands that were started from the page run already", len(s.list))
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // who closes the window leaves nothing half done
	w := &work{ID: id, Title: title, Began: time.Now(), cancel: cancel}
	s.list = append(s.list, w)
	s.wg.Add(1)
	s.change()
	return ctx, w, nil
}

// change has every window show the works again.
func (s *works) change() {
	s.changes++
	raise(s.changed)
}

func (s *works) end(w *work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.cancel(nil)
	for i, v := range s.list {
		if v == w {
			s.list = append(s.list[:i:i], s.list[i+1:]...)
		}
	}
	s.change()
	s.wg.Done()
}

// progress takes what a work reports.
func (s *works) progress(w *work) func(run.Progress) {
	return func(p run.Progress) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.Step = p.Step; p.Total > 0 {
			w.Step += fmt.Sprintf(", %s of %s", humanize.IBytes(uint64(max(p.Done, 0))), humanize.IBytes(uint64(p.Total)))
		}
		if time.Since(w.shown) >= stepTime {
			w.shown = time.Now()
			s.change()
		}
	}
}

// now lists copies of the works, and a number that changes with them.
func (s *works) now() (list []work, changes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.list {
		list = append(list, work{ID: w.ID, Title: w.Title, Began: w.Began, Step: w.Step})
	}
	return list, s.changes
}

func (s *works) has(id string) bool {
	list, _ := s.now()
	for _, w := range list {
		if w.ID == id {
			return true
		}
	}
	return false
}

// cancel ends a work; false when it ended already.
func (s *works) cancel(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.list {
		if w.ID == id && !w.stopped {
			w.stopped, w.Step = true, "is being cancelled"
			w.cancel(errCancelled)
			s.change()
			return true
		}
	}
	return false
}

// close cancels all and waits until they ended: records are complete then.
func (s *works) close() {
	s.mu.Lock()
	s.closed = true
	for _, w := range s.list {
		w.cancel(errCancelled)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// perform does an action of a form. do returns what came of it, and the page to show then. What takes longer than a
// person waits for a page goes on, and all windows show it.
func (s *Server) perform(
	w http.ResponseWriter, r *http.Request, title string, back []string,
	do func(context.Context, *sandbox.Manager) (*notice, []string),
) {
	ctx, v, err := s.works.begin(r.Context(), s.store.NewID(), title)
	if err != nil {
		s.then(w, r, failed(err, &notice{}), back...)
		return
	}
	key, ended := s.notices.add(nil), make(chan []string, 1)
	go func() {
		bounded, over := context.WithTimeoutCause(ctx, actTime, fmt.Errorf("it took longer than %s", actTime))
		defer over()
		n, to := do(bounded, s.manager.With(func(o *run.Options) { o.Progress = s.works.progress(v) }))
		if cause := context.Cause(bounded); cause != nil && n.Failed {
			n.Text = fmt.Sprintf("%s: %s: %s", title, cause, n.Text)
		}
		s.notices.set(key, n)
		ended <- to
		s.works.end(v)
	}()
	select {
	case back = <-ended:
	case <-time.After(patience):
	case <-r.Context().Done():
	}
	s.lead(w, r, key, back)
}

// cancel ends an action or a command.
func (s *Server) cancel(w http.ResponseWriter, r *http.Request) {
	id, back := r.PathValue("id"), []string{"runs", r.PathValue("id")}
	if _, err := s.store.Load(id); err != nil {
		back = nil
	}
	if !s.works.cancel(id) {
		s.then(w, r, &notice{Failed: true, Text: "only what runs and was started from this page can be ended here"}, back...)
		return
	}
	s.then(w, r, &notice{Text: "It is being ended"}, back...)
}
