package ui

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// What of a large thing is shown on a page; the command line has all of it.
const (
	maxFiles  = 100         // of a review; links lead to the others
	maxOpen   = 8           // files of a review, up to which their differences are shown at once
	maxLines  = 4000        // of one file's difference
	maxLine   = 2000        // bytes of a line of it
	maxOutput = 256 << 10   // bytes of a stream
	maxLive   = 32 << 10    // bytes of a stream while it is written, so that it can be shown again and again
	maxEvents = 200         // of a run, the last ones
	maxListed = 200         // limits, destinations, outputs and changes of a run, each
	pageTime  = time.Minute // to make one page
)

//go:embed page
var files embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"safe":      termsafe.Line,
	"quote":     review.Quote,
	"word":      func(s string) string { return termsafe.Line(termsafe.ShellWord(s)) },
	"ago":       humanize.Time,
	"size":      func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) },
	"outcome":   record.Outcome,
	"ref":       ref,
	"utc":       func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"local":     func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") },
	"plural":    plural,
	"lines":     termsafe.String,
	"clip":      clip,
	"text":      text,
	"networkOf": func(p page, n result.Network, r *runPage) networkPart { return networkPart{p, n, r} },
	"runsOf":    func(p page, list []store.Info, choose bool) runList { return runList{p.Root, list, choose} },
	"ended":     func(i store.Info) bool { return i.Kind == store.KindRun && i.State == store.StateFinished },
	"bad": func(i store.Info) bool {
		return i.State == store.StateFinished && !i.OK || i.State == store.StateDamaged
	},
}).ParseFS(files, "page/*.html"))

// page is what each template gets.
type page struct {
	Title   string
	Nav     string // sandboxes, runs or doctor
	Root    string // before every path
	CSRF    string
	Hutch   string // version
	Store   string
	Notice  *notice
	Works   []work // that go on
	View    *overview
	Version string            // changes with what the page shows; "" for that of View
	Run     string            // whose output it follows; "" for none
	Box     string            // whose page it is; "" for none
	Had     map[string]string // signs of cards that our script has already, by id
	Body    any
}

// networkPart is what the network of a run decided.
type networkPart struct {
	page
	Network result.Network
	Run     *runPage
}

// runList is a table of runs.
type runList struct {
	Root   string
	Runs   []store.Info
	Choose bool // with boxes to compare two
}

// Handler serves all pages, and refuses requests of anybody but the user's browser.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.home)
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /sandbox/{id}", s.sandbox)
	mux.HandleFunc("GET /sandbox/{id}/file", s.file)
	mux.HandleFunc("GET /sandbox/{id}/do", s.deeds)
	mux.HandleFunc("POST /sandbox/{id}/{action}", s.act)
	mux.HandleFunc("POST /create", s.create)
	mux.HandleFunc("GET /doctor", s.doctor)
	mux.HandleFunc("POST /doctor", s.examine)
	mux.HandleFunc("GET /compare", s.compare)
	mux.HandleFunc("GET /runs", s.runs)
	mux.HandleFunc("GET /runs/{id}", s.run)
	mux.HandleFunc("POST /runs/{id}/allow", s.allow)
	mux.HandleFunc("POST /cancel/{id}", s.cancel)
	static, _ := fs.Sub(files, "page")
	for _, name := range []string{"style.css", "script.js"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, static, name) })
	}
	return s.guard.protect(mux)
}

// show renders a page. Nothing of it is sent before all of it is there.
func (s *Server) show(w http.ResponseWriter, r *http.Request, code int, name string, p page) {
	p.Root, p.CSRF, p.Hutch, p.Store = s.guard.prefix, s.guard.csrf, s.version, s.store.Paths().Data
	p.Works, _ = s.works.now()
	p.Notice = s.notices.get(r.URL.Query().Get("said"))
	if p.View == nil {
		p.View = s.overview(r)
	}
	switch {
	case p.Version != "":
		p.Version = p.View.Version + "." + p.Version
	case p.Box != "":
		p.Version = cmp.Or(p.View.of(p.Box), p.View.Version)
	default:
		p.Version = p.View.Version
	}
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, p); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

func (s *Server) missing(w http.ResponseWriter, r *http.Request, nav string, err error) {
	code, title := http.StatusInternalServerError, "Failed"
	switch {
	case errors.Is(err, store.ErrNoSandbox) || errors.Is(err, store.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		code, title = http.StatusNotFound, "Not found"
	case errors.Is(err, errRequest) || errors.Is(err, review.ErrOutside):
		code, title = http.StatusBadRequest, "Invalid request"
	}
	s.show(w, r, code, "missing.html", page{Title: title, Nav: nav, Body: err.Error()})
}

func (s *Server) home(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "home.html", page{Title: "Sandboxes", Nav: "sandboxes", Body: s.pool.Names(),
		Had: s.latest.had(r.Header.Get(hasHeader))})
}

// boxPage is the page of one sandbox.
type boxPage struct {
	*card
	Runs      []store.Info // that ran in it, newest first
	NoReview  string       // why there is nothing to review
	Gaps      string
	Merge     bool // texts that both sides changed are joined
	Joined    bool // there are such texts
	Files     []fileRow
	All       int    // files that changed
	Find      string // in the path of each of Files; "" for all
	From, To  int    // which of those found are in Files: after From, up to To
	Found     int
	Conflicts int
	Flags     []flag // that would allow what is refused
	Undo      *review.Applied
}

// Part is the address of another part of the files, beginning after n.
func (b *boxPage) Part(n int) string {
	v := url.Values{"from": {strconv.Itoa(max(0, n))}}
	if b.Find != "" {
		v.Set("find", b.Find)
	}
	if !b.Merge {
		v.Set("merge", "0")
	}
	return "?" + v.Encode()
}

// Before is the address of the part before this one; "" for none.
func (b *boxPage) Before() string {
	if b.From == 0 {
		return ""
	}
	return b.Part(b.From - maxFiles)
}

// After is the address of the part after this one; "" for none.
func (b *boxPage) After() string {
	if b.To >= b.Found {
		return ""
	}
	return b.Part(b.To)
}

// fileRow is one change of a review.
type fileRow struct {
	*review.Change
	Ref     string
	Letter  string // as git's status has it
	Refused []review.DocumentRule
	Others  []string  // sandboxes on the same project that wrote the path, too
	Places  []place   // that both sides changed
	Diff    *fileDiff // nil until it is asked for
}

// place is a place of a text that both sides changed, with what it is on either.
type place struct {
	N, Of                  int
	Before, After          string // lines around it
	Project, Base, Sandbox string
	Seen                   string // of all of the text
}

// placesOf are the places of a change that a person has to decide about.
func placesOf(c *review.Change) (list []place) {
	seen, around := digest(c.Pieces), ""
	for _, p := range c.Pieces {
		if !p.Overlap {
			lines := strings.SplitAfter(p.Text, "\n")
			around = clipped(strings.Join(lines[max(0, len(lines)-4):], ""))
			if n := len(list); n > 0 {
				list[n-1].After = clipped(strings.Join(lines[:min(3, len(lines))], ""))
			}
			continue
		}
		list = append(list, place{
			N: len(list) + 1, Before: around, Seen: seen,
			Project: clipped(p.Ours), Base: clipped(p.Base), Sandbox: clipped(p.Theirs),
		})
		around = ""
	}
	for i := range list {
		list[i].Of = len(list)
	}
	return list
}

// flag allows what an apply refuses by default.
type flag struct {
	Flag  string
	Files int // that need it
}

func (s *Server) sandbox(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	view := s.overview(r)
	c := view.card(r.PathValue("id"))
	if c == nil {
		s.missing(w, r, "sandboxes", fmt.Errorf("%w: %s", store.ErrNoSandbox, r.PathValue("id")))
		return
	}
	b := &boxPage{card: c, Merge: r.URL.Query().Get("merge") != "0", Find: r.URL.Query().Get("find")}
	if n, err := strconv.Atoi(r.URL.Query().Get("from")); err == nil {
		b.From = max(0, n)
	}
	for _, i := range view.Runs {
		if i.Sandbox == b.Name && !i.Started.Before(b.Created) && len(b.Runs) < 10 {
			b.Runs = append(b.Runs, i)
		}
	}
	b.Undo, _ = s.ledger.Last(b.ID)
	if err := s.review(ctx, b); err != nil {
		b.NoReview = err.Error()
	}
	for _, c := range view.Cards {
		if c.ID != b.ID && c.Workspace.Source != "" && c.Workspace.Source == b.Workspace.Source {
			c.wrote(b.Files)
		}
	}
	s.show(w, r, http.StatusOK, "sandbox.html", page{Title: b.Title(), Nav: "sandboxes", View: view, Box: b.ID,
		Body: b})
}

// review fills in what changed. Differences of few files are read at once.
func (s *Server) review(ctx context.Context, b *boxPage) error {
	v, err := workspace.OpenReview(ctx, s.manager, b.ID, sandbox.Shared, review.Options{Merge: b.Merge})
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }()
	if v.Gaps != nil {
		b.Gaps = v.Gaps.Error()
	}
	list, flags := review.Shown(v.Changes), map[string]int{}
	docs := map[string]review.DocumentItem{}
	if len(list) <= maxOpen {
		d, err := v.Document(ctx)
		if err != nil {
			return err
		}
		for _, i := range d.Changes {
			docs[i.Path] = i
		}
	}
	for _, c := range list {
		for _, f := range c.Refusals(nil) {
			if f.Flag != "" {
				flags[f.Flag]++
			}
		}
		if c.Conflict != "" {
			b.Conflicts++
		}
		b.Joined = b.Joined || c.Merged || c.Pieces != nil
		if b.Find != "" && !strings.Contains(c.Path, b.Find) && !strings.Contains(c.From, b.Find) {
			continue
		}
		if b.Found++; b.Found <= b.From || len(b.Files) >= maxFiles {
			continue
		}
		row := fileRow{Change: c, Ref: ref(c.Path), Letter: c.Kind.Letter(), Refused: c.Refusals(nil), Places: placesOf(c)}
		if d, ok := docs[c.Path]; ok {
			row.Diff = diffOf(d, c)
		}
		b.Files = append(b.Files, row)
	}
	b.All, b.To = len(list), b.From+len(b.Files)
	for f, n := range flags {
		b.Flags = append(b.Flags, flag{f, n})
	}
	slices.SortFunc(b.Flags, func(a, b flag) int { return strings.Compare(a.Flag, b.Flag) })
	return nil
}

// deeds shows what can be done with a sandbox, which our script opens over the page that led there.
func (s *Server) deeds(w http.ResponseWriter, r *http.Request) {
	view := s.overview(r)
	c := view.card(r.PathValue("id"))
	if c == nil {
		s.missing(w, r, "sandboxes", fmt.Errorf("%w: %s", store.ErrNoSandbox, r.PathValue("id")))
		return
	}
	s.show(w, r, http.StatusOK, "do.html", page{Title: c.Title(), Nav: "sandboxes", View: view, Body: struct {
		*card
		Home bool
	}{c, r.URL.Query().Get("home") != ""}})
}

// wrote names the sandbox at the files that it wrote, too, where its layer is on this host.
func (c *card) wrote(list []fileRow) {
	l := c.Workspace.Layers
	if l == nil || l.Upper == "" {
		return
	}
	// It is hostile, and may have links that lead elsewhere.
	u, err := overlay.OpenUnion("", l.Upper, overlay.UnionOptions{Trusted: l.Trusted, Frozen: l.Frozen})
	if err != nil {
		return
	}
	defer u.Close()
	for i, f := range list {
		if n, err := u.Lstat(f.Path); err == nil && !n.Mode.IsDir() {
			list[i].Others = append(list[i].Others, c.Title())
		}
	}
}

// within are the changes in a directory that is new or gone; of anything else there are none.
func within(c *review.Change, all []*review.Change) (list []*review.Change) {
	if c.Kind != review.Added && c.Kind != review.Deleted ||
		c.Old.Type != review.Directory && c.New.Type != review.Directory {
		return nil
	}
	for _, o := range all {
		if strings.HasPrefix(o.Path, c.Path+"/") || strings.HasPrefix(o.From, c.Path+"/") {
			list = append(list, o)
		}
	}
	return list
}

// ref is a path, which may hold any bytes, in a form.
func ref(path string) string { return base64.RawURLEncoding.EncodeToString([]byte(path)) }

// errRequest says that none of our pages makes such a request.
var errRequest = errors.New("invalid request")

// deref is the path of a ref.
func deref(s string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) > 64<<10 {
		return "", fmt.Errorf("%w: a path of the form is not base64", errRequest)
	}
	return string(b), nil
}

// fileDiff is the difference of one file.
type fileDiff struct {
	Seen   string // of all that is shown, and what is beyond it
	Note   string // why there are no lines
	Mode   string
	Choose bool // hunks can be applied one by one
	Lines  []diffLine
	More   int // lines beyond Lines
}

// diffLine is one line. A hunk's head has no line numbers.
type diffLine struct {
	Class    string // head, add, del or ctx
	Old, New int    // line numbers; 0 for none
	Text     string // escaped for people; html/template escapes it for HTML
	Hunk     int    // of a hunk's head: its number, from 1
	ID       string // of a hunk's head: stands for the hunk's text, so that a tick stays with it
}

func diffOf(d review.DocumentItem, c *review.Change) *fileDiff {
	f := &fileDiff{Seen: fingerprint(d), Note: d.Note}
	switch {
	case d.Binary:
		f.Note = "binary"
	case d.New != nil && d.New.Link != "":
		f.Note = "a symbolic link to " + review.Quote(d.New.Link)
	case d.New != nil && d.New.Type == review.Directory, d.New == nil && d.Old != nil && d.Old.Type == review.Directory:
		f.Note = "a directory"
	case d.Note == "" && len(d.Hunks) == 0 && d.Old == nil:
		f.Note = "an empty file"
	}
	f.Choose = c.Pieces == nil && d.From == "" &&
		d.Old != nil && d.Old.Type == review.File && d.New != nil && d.New.Type == review.File
	if d.Old != nil && d.New != nil && d.Old.Mode != d.New.Mode {
		f.Mode = "mode " + d.Old.Mode + " to " + d.New.Mode
	}
	same := map[string]int{} // hunks with the same text
	for _, h := range d.Hunks {
		old, now, id := h.OldStart, h.NewStart, digest(h.Lines)
		same[id]++
		f.add(diffLine{
			Class: "head", Hunk: h.Number, ID: fmt.Sprint(id, "-", same[id]),
			Text: fmt.Sprintf("Lines %d to %d, hunk %d", h.NewStart, h.NewStart+max(h.NewLines, 1)-1, h.Number),
		})
		for _, l := range h.Lines {
			text := termsafe.String(clip(strings.TrimSuffix(l[1:], "\n")))
			switch l[0] {
			case '-':
				f.add(diffLine{Class: "del", Old: old, Text: text})
				old++
			case '+':
				f.add(diffLine{Class: "add", New: now, Text: text})
				now++
			default:
				f.add(diffLine{Class: "ctx", Old: old, New: now, Text: text})
				old, now = old+1, now+1
			}
			if !strings.HasSuffix(l, "\n") {
				f.add(diffLine{Class: "head", Text: "no newline at the end"})
			}
		}
	}
	return f
}

func (f *fileDiff) add(l diffLine) {
	if len(f.Lines) >= maxLines {
		f.More++
		return
	}
	f.Lines = append(f.Lines, l)
}

// text is a text that is written as JSON, as it is; other values stay as they are written.
func text(value string) string {
	var s string
	if json.Unmarshal([]byte(value), &s) == nil && s != "" {
		return s
	}
	return value
}

func clip(s string) string {
	if len(s) <= maxLine {
		return s
	}
	return strings.ToValidUTF8(s[:maxLine], "") + fmt.Sprintf(" … and %d bytes more", len(s)-maxLine)
}

// fingerprint stands for a change as it was shown. An apply from the page refuses another one.
func fingerprint(d review.DocumentItem) string {
	d.Sides = nil // when a side was written is of no matter
	return digest(d)
}

func digest(v any) string {
	b, _ := json.Marshal(v)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

// Row is the file, for a template that embeds it.
func (f *fileRow) Row() *fileRow { return f }

// filePage is the difference of one file of a sandbox.
type filePage struct {
	*card
	Merge bool
	fileRow
}

func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	view := s.overview(r)
	path, err := deref(r.URL.Query().Get("path"))
	c := view.card(r.PathValue("id"))
	if err == nil && c == nil {
		err = fmt.Errorf("%w: %s", store.ErrNoSandbox, r.PathValue("id"))
	}
	p := &filePage{Merge: r.URL.Query().Get("merge") != "0"}
	if err == nil {
		p.card = c
		err = s.fileDiff(ctx, p, path, r.URL.Query().Get("from"))
	}
	if err != nil {
		s.missing(w, r, "sandboxes", err)
		return
	}
	s.show(w, r, http.StatusOK, "file.html", page{Title: review.Quote(path), Nav: "sandboxes", View: view, Body: p})
}

func (s *Server) fileDiff(ctx context.Context, p *filePage, path, from string) error {
	paths := []string{path}
	if from != "" {
		was, err := deref(from)
		if err != nil {
			return err
		}
		paths = append(paths, was)
	}
	v, err := workspace.OpenReview(ctx, s.manager, p.ID, sandbox.Shared, review.Options{Paths: paths, Merge: p.Merge})
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }()
	d, err := v.Document(ctx)
	if err != nil {
		return err
	}
	for i, c := range v.Changes {
		if c.Path == path {
			p.fileRow = fileRow{
				Change: c, Ref: ref(path), Letter: c.Kind.Letter(), Refused: c.Refusals(nil), Places: placesOf(c),
				Diff: diffOf(d.Changes[i], c),
			}
			return nil
		}
	}
	return fmt.Errorf("nothing changed at %s: %w", review.Quote(path), fs.ErrNotExist)
}

func (s *Server) runs(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "runs.html", page{Title: "Runs", Nav: "runs"})
}

// runPage is the page of one run.
type runPage struct {
	store.Info
	Dir     string
	Command string
	Result  *result.Result // nil until there is one
	Now     *result.Result // of a command that runs: what its network decided so far; else nil
	Reason  string
	Took    time.Duration
	Limits  []limitRow
	Denied  []denial
	Denials int // beyond Denied
	Files   []shownFile
	Talk    *talk        // of a loop
	Silent  string       // why a loop has no Talk
	Parts   []store.Info // runs of a loop
	Streams []stream
	Events  []store.Event
	Earlier int    // events before those
	Tree    string // its steps
	Ours    bool   // it was started from this page and can be cancelled
	Check   *check
}

// stream is the end of what a program wrote.
type stream struct {
	Name    string
	HTML    template.HTML
	Before  int64 // bytes that are not shown
	Written int64
}

func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	version := s.progress(r.PathValue("id")) // before anything is read
	rec, err := s.store.Load(r.PathValue("id"))
	if err != nil {
		s.missing(w, r, "runs", err)
		return
	}
	p := &runPage{Info: rec.Info, Dir: rec.Dir, Ours: s.works.has(rec.ID)}
	if raw, err := rec.Result(); err == nil && rec.Kind == store.KindRun {
		if res, err := result.Decode(raw); err == nil {
			p.Result, p.Reason, p.Limits, p.Files = res, report.Reason(res), limitRows(res),
				s.shownFiles(r.Host, rec.ID, res.Outputs)
			p.Denied, p.Denials = s.denials(res)
			p.Command = commandLine(res.Command)
		}
	}
	if p.Result == nil && rec.State == store.StateRunning && rec.Kind == store.KindRun {
		p.Now, p.Denied, p.Denials = s.live(r.Context(), rec)
		p.Command = commandLine(p.Now.Command)
	}
	if rec.Ended != nil {
		p.Took = rec.Ended.Sub(rec.Started).Round(time.Millisecond)
	}
	if rec.Kind == store.KindRun {
		for _, name := range []store.Stream{store.Stdout, store.Stderr} {
			if st, ok := readStream(rec, name); ok {
				p.Streams = append(p.Streams, st)
			}
		}
	} else {
		if p.Talk, err = conversation(s.store, rec.Info); err != nil {
			p.Silent = err.Error()
		}
		p.Parts, _ = s.store.Parts(rec.ID)
	}
	if t, err := record.Tree(s.store, rec.ID); err == nil {
		var b strings.Builder
		_ = t.WriteText(&b, record.Style{Width: 110})
		p.Tree = b.String()
	}
	events, _ := rec.Events()
	p.Earlier = max(0, len(events)-maxEvents)
	p.Events = events[p.Earlier:]
	if r.URL.Query().Get("check") != "" {
		p.Check = s.checks.verify(r.Context(), s.store, rec.ID, len(events))
	}
	s.show(w, r, http.StatusOK, "run.html", page{Title: rec.Name, Nav: "runs", Version: version, Run: rec.ID, Body: p})
}

func commandLine(argv []string) string {
	var words []string
	for _, a := range argv {
		words = append(words, termsafe.ShellWord(a))
	}
	return strings.Join(words, " ")
}

// check is what a verification of a run's events found.
type check struct {
	When    time.Time
	Problem string // why it could not be done
	OK      bool
	Events  uint64
	Files   int
	Found   []store.Finding
}

// checks keeps what was verified, so that a page that is fetched again for another reason does not verify again.
type checks struct {
	mu   sync.Mutex
	done map[string]*check
}

func (c *checks) verify(ctx context.Context, st *store.Store, id string, events int) *check {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint(id, events)
	if k := c.done[key]; k != nil && time.Since(k.When) < maxAge {
		return k
	}
	k := &check{When: time.Now(), OK: true}
	err := st.VerifyTree(ctx, id, func(r *store.Report) error {
		k.OK = k.OK && r.OK
		k.Events, k.Files = k.Events+r.Events, k.Files+r.Files
		k.Found = append(k.Found, r.Findings[:min(len(r.Findings), maxListed)]...)
		return nil
	})
	if err != nil {
		k.OK, k.Problem = false, err.Error()
	}
	if len(c.done) >= maxRuns || c.done == nil {
		c.done = map[string]*check{}
	}
	c.done[key] = k
	return k
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "x") || strings.HasSuffix(what, "ss") {
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}
