package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// verifyRun checks one run against what the audit chain knows about it, and about the runs that its events name.
func (s *Store) verifyRun(ctx context.Context, id string, known map[string]auditKnown) (*Report, error) {
	info := s.readInfo(id)
	rep := &Report{Run: id, OK: true, State: info.State, Findings: []Finding{}}
	if info.State == StateDamaged {
		rep.find(Finding{Problem: ProblemRecord, Path: infoFile, Detail: info.Damage})
	}
	dir := s.paths.Run(id)
	told, err := readTold(ctx, dir, id, 0, rep)
	if err != nil {
		return nil, err
	}
	if told.torn > 0 {
		rep.find(Finding{Problem: ProblemTornTail, Harmless: info.State != StateFinished, Event: told.seq + 1, Path: eventsFile,
			Detail: fmt.Sprintf("%d bytes of an incomplete event at the end: its writer died", told.torn)})
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, diskError("read", dir, err)
	}
	defer root.Close()
	v := runVerifier{told: told, rep: rep, info: info, known: known[id]}
	told.parts(known, rep)
	if err := told.files(ctx, root, rep); err != nil {
		return nil, err
	}
	if err := v.anchors(dir); err != nil {
		return nil, err
	}
	if told.broken || told.first.Record == "" {
		return rep, nil // what more there is cannot be told; or it is of a version that told less
	}
	if err := v.record(dir); err != nil {
		return nil, err
	}
	return rep, strangers(ctx, root, rep, v.knows)
}

type runVerifier struct {
	*told
	rep   *Report
	info  Info
	known auditKnown
}

// record compares run.jsonl with the hashes of its lines that the event chain and the audit chain know. It is read after
// both, so that it has grown since at most.
func (v *runVerifier) record(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, infoFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // and said to be damaged
	}
	if err != nil {
		return diskError("read", filepath.Join(dir, infoFile), err)
	}
	wrong := func(format string, args ...any) {
		v.rep.find(Finding{Problem: ProblemRecord, Path: infoFile, Detail: fmt.Sprintf(format, args...)})
	}
	v.rep.Files++
	v.rep.Bytes += int64(len(b))
	lines, err := readInfoLines(b)
	if err != nil {
		wrong("%v", err)
		return nil
	}
	at := 0
	for _, p := range v.pins {
		i := slices.Index(lines.hashes[at:], p)
		if i < 0 {
			wrong("it lacks a line that the event chain knows")
			return nil
		}
		at += i
	}
	end := v.known.end
	switch {
	case end == nil:
	case lines.last() == end.Record:
		if lines.torn > 0 {
			wrong("it goes on for %d B after its last line", lines.torn)
		}
		return nil
	case v.info.State != StateFinished && at == len(lines.hashes)-1:
		v.rep.find(Finding{Problem: ProblemRecord, Harmless: true, Path: infoFile, Detail: "its last line, which the audit chain knows, is not there: the host process died before it wrote it"})
	default:
		wrong("it is not the one that the audit chain knows")
	}
	if lines.torn > 0 {
		v.rep.find(Finding{Problem: ProblemTornTail, Harmless: v.info.State != StateFinished, Path: infoFile,
			Detail: fmt.Sprintf("%d bytes of an incomplete line at the end: its writer died", lines.torn)})
	}
	return nil
}

// knows tells the files that a run has without an event that points at them.
func (v *runVerifier) knows(name string) bool {
	if slices.Contains([]string{infoFile, eventsFile, resultFile}, name) || v.refs[name].Path != "" {
		return true
	}
	if v.last.Type == EventEnd || v.info.State == StateFinished {
		return false
	}
	// What goes on, or was killed, has files that no event has spoken of yet.
	return below(name, codeDir) || below(name, outputDir) || below(name, callsDir) || isLogFile(name)
}

// anchors compares the chain with what others say about it: run.jsonl, result.json and the audit chain.
func (v *runVerifier) anchors(dir string) error {
	rep, known := v.rep, v.known
	result, err := os.ReadFile(filepath.Join(dir, resultFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("read", filepath.Join(dir, resultFile), err)
	}
	hasResult := err == nil

	ended := v.last.Type == EventEnd
	switch v.info.State {
	case StateFinished:
		if !hasResult {
			rep.find(Finding{Problem: ProblemRecord, Path: resultFile, Detail: "the run is finished and its result is gone"})
		}
		if known.end == nil {
			rep.find(Finding{Problem: ProblemHeadMismatch, Detail: "the run is finished and the audit chain does not know its end"})
		}
		if ended {
			v.compareEnd()
		} else {
			rep.find(Finding{Problem: ProblemHeadMismatch, Event: v.last.Seq, Detail: "the run is finished and the last event of its chain is not its end: events are missing"})
		}
	case StateInterrupted:
		before := "the run had a result"
		if hasResult {
			before = "it wrote down that the run was finished"
		}
		rep.find(Finding{Problem: ProblemUnfinished, Harmless: true, Event: v.last.Seq, Detail: fmt.Sprintf("the host process (pid %d) ended before %s: it was killed, or there was no room on the disk for the record; the last event is %s", v.info.Host.PID, before, orNone(string(v.last.Type)))})
	}
	if hasResult {
		v.compareResult(result)
	}
	if known.end != nil && (known.end.Events != rep.Events || known.end.Head != rep.Head) {
		rep.find(Finding{Problem: ProblemHeadMismatch, Event: rep.Events, Detail: fmt.Sprintf("the audit chain knows %d events up to %s, the chain has %d up to %s", known.end.Events, short(known.end.Head), rep.Events, short(rep.Head))})
	}
	switch {
	case known.begin == nil && v.first.Seq == 1 && v.last.Seq == 1 && v.info.State != StateFinished:
		// Its host is between making the directory and entering it in the audit chain, or died there.
	case known.begin == nil:
		rep.find(Finding{Problem: ProblemUnknownRun, Detail: "the audit chain does not know this run"})
	case v.first.Seq == 1 && known.begin.Head != v.first.Hash:
		rep.find(Finding{Problem: ProblemHeadMismatch, Event: 1, Detail: "the first event is not the one that the audit chain knows: the chain was replaced"})
	}
	return nil
}

// compareEnd compares run.jsonl with the end that the chain tells.
func (v *runVerifier) compareEnd() {
	var end endData
	if err := json.Unmarshal(v.last.Data, &end); err != nil {
		v.rep.find(Finding{Problem: ProblemBrokenEvent, Event: v.last.Seq, Detail: fmt.Sprintf("data of the end: %v", err)})
		return
	}
	if v.info.OK != end.OK || v.info.Cause != end.Cause || !equalInt(v.info.ExitCode, end.ExitCode) {
		v.rep.find(Finding{Problem: ProblemRecord, Path: infoFile, Detail: "it tells another end of the run than the event chain"})
	}
}

func equalInt(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }

// compareResult compares result.json with the audit chain and with the chain that it names.
func (v *runVerifier) compareResult(result []byte) {
	rep := v.rep
	rep.Files++
	rep.Bytes += int64(len(result))
	if end := v.known.end; end != nil && (int64(len(result)) != end.ResultSize || sumHex(result) != end.ResultSHA256) {
		rep.find(Finding{Problem: ProblemRecord, Path: resultFile, Detail: "it is not the result that the audit chain knows"})
	}
	ref, ok := findChainRef(result)
	switch {
	case !json.Valid(result):
		rep.find(Finding{Problem: ProblemRecord, Path: resultFile, Detail: "it is not JSON"})
	case !ok:
		rep.find(Finding{Problem: ProblemRecord, Path: resultFile, Detail: "it does not name the head of the event chain"})
	case ref.Events != rep.Events || ref.Head != rep.Head:
		rep.find(Finding{Problem: ProblemHeadMismatch, Event: rep.Events, Path: resultFile, Detail: fmt.Sprintf("the result names %d events up to %s, the chain has %d up to %s", ref.Events, short(ref.Head), rep.Events, short(rep.Head))})
	}
}

// findChainRef finds the ChainRef among the top-level members of a result, whatever its member is called.
func findChainRef(result []byte) (ChainRef, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil {
		return ChainRef{}, false
	}
	for _, m := range members {
		var ref ChainRef
		if len(m) > 0 && m[0] == '{' && json.Unmarshal(m, &ref) == nil && ref.Path == eventsFile && len(ref.Head) == hashHex {
			return ref, true
		}
	}
	return ChainRef{}, false
}

func short(hash string) string { return orNone(hash[:min(len(hash), 12)]) }

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
