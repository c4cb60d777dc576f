package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/replay"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
)

// denial is a destination that the network denied, with what would allow it.
type denial struct {
	Text    string
	Line    string // for the network block of a run file; "" where a single rule would not do
	Rule    string // that allows it
	Command string // that runs the same again with the rule, or makes a sandbox that has it
	Once    bool   // Command changes nothing beyond one command
	Open    bool   // the command runs, and Command opens its network until it ends
	Opened  bool   // that was done
}

// live lists what the network of a command that runs denied so far, and what it decided.
func (s *Server) live(ctx context.Context, rec *store.Record) (r *result.Result, list []denial, more int) {
	var d struct {
		Network network.Network
		Command []string
	}
	if raw, err := rec.Definition(); err == nil {
		_ = json.Unmarshal(raw, &d) // else only what was decided is known
	}
	all, opened := traffic(rec)
	r = &result.Result{ID: rec.ID, Command: d.Command,
		Network: result.Network{Mode: d.Network.Mode, Allow: d.Network.Allow, Traffic: all}}
	f, err := s.pool.Facts(ctx, rec.Backend)
	can := err == nil && f.Has(sdk.CapAllow)
	list, more = s.denials(r)
	for i := range list {
		t := &list[i]
		t.Open, t.Opened, t.Once, t.Command = can && t.Rule != "", slices.Contains(opened, t.Rule), false, ""
		if t.Open {
			t.Command = "echo " + termsafe.ShellWord(t.Rule) + " >> " + termsafe.ShellWord(store.AllowFile(rec.Dir))
		}
	}
	return r, list, more
}

// denials lists what the network denied.
func (s *Server) denials(r *result.Result) (list []denial, more int) {
	all := r.Network.Denied()
	for _, t := range all[:min(len(all), maxListed)] {
		text, fix := network.Denial(t)
		d := denial{Text: text}
		if rule, ok := strings.CutPrefix(fix, "--allow-host "); ok {
			var quoted []string
			for _, a := range append(slices.Clone(r.Network.Allow), rule) {
				quoted = append(quoted, strconv.Quote(a))
			}
			d.Line, d.Rule, d.Once = "allow = ["+strings.Join(quoted, ", ")+"]", rule, true
			switch {
			case r.Sandbox == nil || r.Kept:
				d.Command = "hutch replay " + fix + " " + r.ID
			case s.allows(r.Sandbox.ID):
				d.Command = "hutch exec " + fix + " " + termsafe.ShellWord(r.Sandbox.Name) + " -- " + commandLine(r.Command)
			default:
				d.Command, d.Once = "hutch create "+fix+" …", false
			}
		}
		list = append(list, d)
	}
	return list, len(all) - len(list)
}

// allows reports whether a sandbox is there whose backend can allow more for one command.
func (s *Server) allows(id string) bool {
	if _, err := s.store.FindSandbox(id); err != nil {
		return false
	}
	s.latest.mu.Lock()
	defer s.latest.mu.Unlock()
	k := s.latest.boxes[id]
	return k != nil && k.facts != nil && k.facts.Has(sdk.CapAllow)
}

// allow has a command that runs reach a destination that it was denied, or runs one that ended again, with a rule that
// allows it once.
func (s *Server) allow(w http.ResponseWriter, r *http.Request) {
	rec, err := s.store.Load(r.PathValue("id"))
	if err != nil {
		s.missing(w, r, "runs", err)
		return
	}
	if rec.State == store.StateRunning {
		rule, n := r.PostForm.Get("rule"), (*notice)(nil)
		_, denied, _ := s.live(r.Context(), rec)
		if slices.ContainsFunc(denied, func(d denial) bool { return d.Open && d.Rule == rule }) {
			err = rec.Allow(rule)
		} else {
			err = fmt.Errorf("%w: the run was not denied what %q allows", errRequest, rule)
		}
		if err != nil {
			n = failed(err, &notice{})
		}
		s.then(w, r, n, "runs", rec.ID)
		return
	}
	id, err := s.again(r.Context(), rec, r.PostForm.Get("rule"))
	if err != nil {
		s.then(w, r, failed(err, &notice{}), "runs", rec.ID)
		return
	}
	s.then(w, r, nil, "runs", id)
}

func (s *Server) again(ctx context.Context, rec *store.Record, rule string) (id string, err error) {
	raw, err := rec.Result()
	if err != nil {
		return "", err
	}
	was, err := result.Decode(raw)
	if err != nil {
		return "", err
	}
	denied, _ := s.denials(was)
	if !slices.ContainsFunc(denied, func(d denial) bool { return d.Once && d.Rule == rule }) {
		return "", fmt.Errorf("%w: the run was not denied what %q allows", errRequest, rule)
	}
	if was.Sandbox != nil && !was.Kept {
		c, err := s.command(ctx, rec, was)
		if err != nil {
			return "", err
		}
		return s.launch(ctx, func(ctx context.Context, id string, begun func()) error {
			c.ID, c.Allow, c.Begun = id, []string{rule}, begun
			return s.exec(ctx, was.Sandbox.ID, c)
		})
	}
	reach, err := network.Filtered([]string{rule})
	if err != nil {
		return "", err
	}
	s.session.UseLocks(replay.RunFile(rec))
	past, err := replay.Prepare(ctx, s.store, rec.ID, replay.Options{Network: reach,
		RunFile: func(path string) (*runfile.Config, error) { return s.load(path) }})
	if err != nil {
		return "", err
	}
	return s.launch(ctx, func(ctx context.Context, id string, begun func()) error {
		runner, err := s.session.Runner("", run.Options{ID: id, Progress: func(run.Progress) { begun() }})
		if err == nil {
			_, err = runner.Run(ctx, past.Definition, run.Streams{})
		}
		return err
	})
}

// command is the one that ran in a persistent sandbox, as far as it is recorded.
func (s *Server) command(ctx context.Context, rec *store.Record, was *result.Result) (c sandbox.Command, err error) {
	sb, err := s.manager.OpenAsleep(ctx, was.Sandbox.ID, sandbox.Shared)
	if err != nil {
		return c, err
	}
	defer func() { _ = sb.Close() }()
	events, err := sb.Events()
	if err != nil {
		return c, err
	}
	for _, e := range events {
		var began struct {
			Run string
			Env []string
		}
		if e.Type == store.EventExecStart && json.Unmarshal(e.Data, &began) == nil && began.Run == rec.ID &&
			len(began.Env) > 0 {
			return c, fmt.Errorf("values of %s were given to the command and are not recorded: run it in a terminal, with -e",
				strings.Join(began.Env, ", "))
		}
	}
	var d struct{ Workdir string }
	raw, err := rec.Definition()
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	return sandbox.Command{Argv: was.Command, Workdir: d.Workdir, Parent: rec.ID}, err
}
