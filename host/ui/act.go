package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// notice is what is said after an action, on the page that follows.
type notice struct {
	Failed  bool
	Text    string
	Lines   []string
	Command string // that does the same; "" for none
}

const maxNotices = 64

// notices are the last ones, each under a name that its page's address has.
type notices struct {
	mu   sync.Mutex
	keys []string
	list map[string]*notice
}

func (n *notices) add(v *notice) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.list == nil {
		n.list = map[string]*notice{}
	}
	if len(n.keys) >= maxNotices {
		delete(n.list, n.keys[0])
		n.keys = n.keys[1:]
	}
	key := rand.Text()
	n.keys, n.list[key] = append(n.keys, key), v
	return key
}

// set replaces what is said, where it is still kept.
func (n *notices) set(key string, v *notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.list[key]; ok {
		n.list[key] = v
	}
}

func (n *notices) get(key string) *notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list[key]
}

// then leads to a page that says what came of an action.
func (s *Server) then(w http.ResponseWriter, r *http.Request, n *notice, to ...string) {
	key := ""
	if n != nil {
		key = s.notices.add(n)
	}
	s.lead(w, r, key, to)
}

// lead leads to a page with a notice, "" for none, which may come later.
func (s *Server) lead(w http.ResponseWriter, r *http.Request, key string, to []string) {
	at := s.guard.at(to...)
	if len(to) == 0 {
		at += "/"
	}
	if key != "" {
		at += "?said=" + url.QueryEscape(key)
	}
	http.Redirect(w, r, at, http.StatusSeeOther)
}

// act does what a form of a sandbox asks for.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	info, err := s.store.FindSandbox(r.PathValue("id"))
	if err != nil || info.ID != r.PathValue("id") {
		s.missing(w, r, "sandboxes", fmt.Errorf("%w: %s", store.ErrNoSandbox, r.PathValue("id")))
		return
	}
	name, back, form := nameOf(info), []string{"sandbox", info.ID}, r.PostForm
	set := func(field string) bool { return form.Get(field) != "" }
	command := func(verb string, flags ...string) string {
		return strings.Join(append(append([]string{"hutch", verb}, flags...), name), " ")
	}
	flags := func(known ...string) (given []string) { // pairs of a field and its flag
		for i := 0; i < len(known); i += 2 {
			if set(known[i]) {
				given = append(given, known[i+1])
			}
		}
		return given
	}
	var do func(ctx context.Context, m *sandbox.Manager, n *notice) error
	action := r.PathValue("action")
	switch action {
	case "reset":
		do = func(ctx context.Context, m *sandbox.Manager, n *notice) error {
			n.Text, n.Command = name+" was reset", command("reset", flags("hard", "--hard", "force", "-f")...)
			if set("hard") {
				n.Text += ", and what it had changed was dropped"
			}
			return m.Reset(ctx, info.ID, set("hard"), set("force"))
		}
	case "stop":
		do = func(ctx context.Context, m *sandbox.Manager, n *notice) error {
			n.Text, n.Command = name+" was stopped", command("stop", flags("force", "-f")...)
			return m.Stop(ctx, info.ID, set("force"))
		}
	case "start":
		do = func(ctx context.Context, m *sandbox.Manager, n *notice) error {
			n.Text, n.Command = name+" was started", command("start")
			return m.Start(ctx, info.ID)
		}
	case "fork":
		do = func(ctx context.Context, m *sandbox.Manager, n *notice) error {
			n.Text, n.Command = name+" was forked", command("fork")
			made, err := m.Fork(ctx, info.ID, "")
			if err == nil {
				back = []string{"sandbox", made[0].ID}
			}
			return err
		}
	case "remove":
		back = nil
		do = func(ctx context.Context, m *sandbox.Manager, n *notice) error {
			n.Text, n.Command = name+" was removed", command("rm", flags("force", "-f")...)
			err := m.Remove(ctx, info.ID, set("force"))
			if err != nil && !set("home") {
				back = []string{"sandbox", info.ID}
			}
			return err
		}
	case "apply":
		do = func(ctx context.Context, m *sandbox.Manager, n *notice) error { return s.apply(ctx, m, info, form, n) }
	case "undo":
		do = func(ctx context.Context, _ *sandbox.Manager, n *notice) error { return s.undo(ctx, info, n) }
	case "run":
		id, err := s.start(r.Context(), info, form.Get("command"))
		if err != nil {
			s.then(w, r, failed(err, &notice{}), back...)
			return
		}
		s.then(w, r, nil, "runs", id)
		return
	default:
		s.missing(w, r, "sandboxes", store.ErrNotFound)
		return
	}
	if set("home") {
		back = nil
	}
	begin := back
	s.perform(w, r, action+" "+name, begin, func(ctx context.Context, m *sandbox.Manager) (*notice, []string) {
		n := &notice{}
		if err := do(ctx, m, n); err != nil {
			n = failed(err, n)
		}
		return n, back
	})
}

// failed says why an action was not done.
func failed(err error, n *notice) *notice {
	f := &notice{Failed: true, Text: err.Error(), Lines: n.Lines}
	if n.Command != "" && len(f.Lines) == 0 {
		f.Command = n.Command
	}
	return f
}

func nameOf(i store.SandboxInfo) string {
	if i.Name != "" {
		return i.Name
	}
	return i.ID
}

// errChanged says that a file is not the one that was looked at.
var errChanged = errors.New("nothing was applied: what you looked at has changed since; look again")

// apply brings changes back to the project, as hutch apply does, and fills in the notice.
func (s *Server) apply(
	ctx context.Context, m *sandbox.Manager, info store.SandboxInfo, form url.Values, n *notice,
) error {
	merge, policy, argv := form.Get("merge") != "", review.Policy{Partial: form.Get("partial") != "",
		Allow: map[judge.Rule]bool{}}, []string{"hutch", "apply", nameOf(info)}
	paths, err := derefs(form["path"])
	take, terr := derefs(form["take"])
	if err := errors.Join(err, terr); err != nil {
		return err
	}
	hunks, err := hunkRefs(form["hunk"])
	if err != nil {
		return err
	}
	resolve, places, err := resolutions(form)
	if err != nil {
		return err
	}
	paths = append(paths, take...)
	all := form.Get("what") == "all"
	for _, a := range resolve {
		if slices.Contains(take, a.Path) {
			return fmt.Errorf("nothing was applied: of %s both the whole and places were chosen", review.Quote(a.Path))
		}
		paths = append(paths, a.Path)
	}
	if !all && len(paths)+len(hunks) == 0 {
		return errors.New("nothing was applied: no file and no hunk was chosen")
	}
	if all {
		hunks = nil
	}
	for _, h := range hunks {
		if slices.Contains(paths, h.Path) {
			return fmt.Errorf("nothing was applied: of %s both the whole and hunks were chosen", review.Quote(h.Path))
		}
	}
	o := review.Options{Merge: merge, Resolve: resolve, Keep: s.ledger.Dir()}
	v, err := workspace.OpenReview(ctx, m, info.ID, sandbox.Exclusive, o)
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }()
	picks := v.All()
	if !all {
		picks = chosen(picks, v.Changes, paths)
		for _, p := range paths {
			if !slices.ContainsFunc(picks, func(k review.Pick) bool { return k.Change.Path == p }) {
				return errChanged
			}
		}
		slices.Sort(paths)
		for _, p := range slices.Compact(paths) {
			argv = append(argv, termsafe.ShellWord(p))
		}
	}
	parts, err := v.PickHunks(ctx, hunks)
	if err != nil {
		return fmt.Errorf("%w (%w)", errChanged, err)
	}
	if err := looked(ctx, v.Review, picks, parts, form["seen"], places, n); err != nil {
		return err
	}
	for _, p := range take {
		argv = append(argv, "--take", termsafe.ShellWord(p))
	}
	for _, a := range resolve {
		argv = append(argv, "--resolve", termsafe.ShellWord(a.String()))
	}
	if picks, err = v.Settle(picks, take); err != nil {
		return err
	}
	picks = append(picks, parts...)
	for _, h := range hunks {
		argv = append(argv, "--hunks", termsafe.ShellWord(h.String()))
	}
	for _, r := range judge.Allowable {
		if slices.Contains(form["allow"], r.Flag()) {
			policy.Allow[r] = true
			argv = append(argv, r.Flag())
		}
	}
	for _, f := range []struct {
		set  bool
		flag string
	}{{merge, "--merge"}, {policy.Partial, "--partial"}} {
		if f.set {
			argv = append(argv, f.flag)
		}
	}
	done, err := v.Apply(ctx, s.ledger, picks, policy, false)
	var blocked *review.BlockedError
	if errors.As(err, &blocked) {
		n.Lines = reasons(slices.Concat(blocked.Conflicts, blocked.Refused), policy.Allow)
		return err
	}
	if err != nil {
		return err
	}
	n.Lines = append(reasons(done.Left, policy.Allow), done.Notes...)
	if len(done.Taken) == 0 {
		return errors.New("nothing was applied: there is nothing to apply")
	}
	n.Text = fmt.Sprintf("%s applied to %s", plural(len(done.Taken), "change"), v.Subject.Project)
	if line := strings.Join(argv, " "); len(line) < 2000 && (len(hunks) == 0 || len(paths) == 0) {
		n.Command = line // the command line takes paths or hunks
	}
	return nil
}

// hunkRefs are the hunks that were ticked, by file.
func hunkRefs(ticked []string) (refs []review.HunkRef, err error) {
	for _, v := range ticked {
		at, number, _ := strings.Cut(v, ".")
		path, err := deref(at)
		if err != nil {
			return nil, err
		}
		h, err := review.ParseHunks(path + ":" + number)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errRequest, err)
		}
		if i := slices.IndexFunc(refs, func(r review.HunkRef) bool { return r.Path == h.Path }); i >= 0 {
			refs[i].Numbers = append(refs[i].Numbers, h.Numbers...)
		} else {
			refs = append(refs, h)
		}
	}
	return refs, nil
}

// placeField begins the names of the fields with a person's choice for a place that both sides changed. The path and
// the number of the place follow; the value is what the text was when it was shown, and the choice.
const placeField = "place."

// resolutions are the choices for places that both sides changed, and what the text of each file was.
func resolutions(form url.Values) (list []review.Resolution, seen map[string]string, err error) {
	chosen := map[string]map[int]review.Choice{}
	seen = map[string]string{}
	for _, field := range slices.Sorted(maps.Keys(form)) {
		at, ok := strings.CutPrefix(field, placeField)
		if !ok {
			continue
		}
		at, number, _ := strings.Cut(at, ".")
		path, perr := deref(at)
		n, nerr := strconv.Atoi(number)
		if perr != nil || nerr != nil || n < 1 {
			return nil, nil, fmt.Errorf("%w: the field %q", errRequest, field)
		}
		if chosen[path] == nil {
			chosen[path] = map[int]review.Choice{}
			list = append(list, review.Resolution{Path: path})
		}
		print, choice, _ := strings.Cut(form.Get(field), ".")
		chosen[path][n], seen[path] = review.Choice(choice), print
	}
	for i, a := range list {
		for n := 1; n <= len(chosen[a.Path]); n++ {
			if chosen[a.Path][n] == "" {
				return nil, nil, fmt.Errorf("nothing was applied: choose for each place of %s", review.Quote(a.Path))
			}
			list[i].Choices = append(list[i].Choices, chosen[a.Path][n])
		}
		if _, err := review.ParseResolution(list[i].String()); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errRequest, err)
		}
	}
	return list, seen, nil
}

// looked checks that the files that are applied, and were looked at, are as they were then. A file of which hunks are
// applied, or places were chosen, must have been looked at, because these are counted.
func looked(
	ctx context.Context, r *review.Review, picks, parts []review.Pick, seen []string, places map[string]string, n *notice,
) error {
	for _, c := range r.Changes {
		if print, ok := places[c.Path]; ok && print != digest(c.Pieces) {
			n.Lines = append(n.Lines, review.Quote(c.Path)+": it is not as it was shown")
		}
	}
	want := map[string]string{}
	for _, v := range seen {
		at, print, _ := strings.Cut(v, ".")
		path, err := deref(at)
		if err != nil {
			return err
		}
		want[path] = print
	}
	for _, k := range parts {
		if want[k.Change.Path] == "" {
			return errChanged
		}
	}
	picks = slices.Concat(picks, parts)
	if len(want) == 0 && len(n.Lines) == 0 {
		return nil
	}
	d, err := r.Document(ctx)
	if err != nil {
		return err
	}
	for i, c := range r.Changes {
		if _, ok := places[c.Path]; ok {
			continue // it is another one since
		}
		if print, ok := want[c.Path]; ok && print != fingerprint(d.Changes[i]) &&
			slices.ContainsFunc(picks, func(k review.Pick) bool { return k.Change == c }) {
			n.Lines = append(n.Lines, review.Quote(c.Path)+": it is not as it was shown")
		}
	}
	if len(n.Lines) > 0 {
		return errChanged
	}
	return nil
}

// chosen are the picks at the paths that were ticked, and those of directories all of whose changes were.
func chosen(picks []review.Pick, all []*review.Change, paths []string) []review.Pick {
	ticked := map[string]bool{}
	for _, p := range paths {
		ticked[p] = true
	}
	return slices.DeleteFunc(picks, func(k review.Pick) bool {
		inside := review.Shown(within(k.Change, all))
		return !ticked[k.Change.Path] && (len(inside) == 0 ||
			slices.ContainsFunc(inside, func(c *review.Change) bool { return !ticked[c.Path] }))
	})
}

func derefs(list []string) (paths []string, err error) {
	for _, v := range list {
		p, err := deref(v)
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// reasons says in a line each why changes are not applied, and what allows them.
func reasons(list []*review.Change, allow map[judge.Rule]bool) (lines []string) {
	for i, c := range list {
		if i == maxListed {
			return append(lines, fmt.Sprintf("and %d more", len(list)-i))
		}
		lines = append(lines, c.Reasons(allow)...)
	}
	return lines
}

func (s *Server) undo(ctx context.Context, info store.SandboxInfo, n *notice) error {
	n.Command = "hutch apply --undo " + nameOf(info)
	a, notes, err := workspace.Undo(ctx, s.store, s.ledger, info.ID)
	var changed *review.UndoError
	if errors.As(err, &changed) {
		n.Lines = changed.Changed
	}
	if err != nil {
		return err
	}
	n.Text, n.Lines = fmt.Sprintf("%s of %s restored to what was before the apply", plural(len(a.Paths), "path"),
		a.Project), notes
	return nil
}

// start runs a line of shell in a sandbox and returns the run's id once its record is there. It goes on afterwards.
func (s *Server) start(ctx context.Context, info store.SandboxInfo, line string) (id string, err error) {
	if strings.TrimSpace(line) == "" || strings.ContainsRune(line, 0) {
		return "", errors.New("write a command first, such as make test")
	}
	return s.launch(ctx, func(ctx context.Context, id string, begun func()) error {
		return s.exec(ctx, info.ID, sandbox.Command{ID: id, Argv: []string{"sh", "-c", line}, Begun: begun})
	})
}

func (s *Server) exec(ctx context.Context, box string, c sandbox.Command) error {
	sb, err := s.manager.Open(ctx, box, sandbox.Shared)
	if err != nil {
		return err
	}
	_, err = sb.Run(ctx, c, run.Streams{})
	return errors.Join(err, sb.Close())
}

// launch begins a run, which goes on afterwards, and returns its id once its record is there.
func (s *Server) launch(ctx context.Context, do func(ctx context.Context, id string, begun func()) error) (string, error) {
	id := s.store.NewID()
	ctx, v, err := s.works.begin(ctx, id, "")
	if err != nil {
		return "", err
	}
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer s.works.end(v)
		ended <- do(ctx, id, sync.OnceFunc(func() { close(begun) }))
	}()
	select {
	case <-begun:
	case err = <-ended:
		if _, missing := s.store.Load(id); missing != nil {
			return "", errors.Join(err, errors.New("the command was not started"))
		}
	}
	return id, nil
}
