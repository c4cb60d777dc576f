package main

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/plugins/e2b/scripts"
	"github.com/hutch-run/hutch/sdk"
)

// Changes implements [sdk.ChangeLister]. The machine lists its workspace, and what does not look as it did when no
// command had run yet is compared with what was sent.
func (s *sandbox) Changes(ctx context.Context) ([]sdk.Change, error) {
	if s.spec.Workspace.Source == "" {
		return nil, nil
	}
	now, err := s.list(ctx, ".")
	if err != nil {
		return nil, pathError(workspacePath, err)
	}
	if err := s.hash(ctx, now, s.settle(now)); err != nil {
		return nil, err
	}
	return diff(s.base.Entries, now), nil
}

// list asks the machine for everything in the directory rel of the workspace.
func (s *sandbox) list(ctx context.Context, rel string) (map[string]entry, error) {
	var l listing
	err := s.repeated(ctx, func() error {
		l = listing{}
		return s.sh(ctx, "list the workspace", rootUser, scripts.List, l.write, scripts.Quote(path.Join(workspacePath, rel)))
	})
	if err != nil {
		return nil, err
	}
	return l.entries(rel)
}

// settle notes the hashes of the files that are untouched since they were sent, and returns those that may differ.
func (s *sandbox) settle(now map[string]entry) (unclear []string) {
	for name, e := range now {
		was, had := s.base.Entries[name]
		switch {
		case !had || !e.Mode.IsRegular() || !was.Mode.IsRegular() || e.Size != was.Size || was.Sum == "":
		case e.Stamp == was.Stamp:
			e.Sum = was.Sum
			now[name] = e
		default:
			unclear = append(unclear, name)
		}
	}
	slices.Sort(unclear)
	return unclear
}

// hash has the machine hash files, and notes what it says.
func (s *sandbox) hash(ctx context.Context, now map[string]entry, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return s.repeated(ctx, func() error { return s.hashOnce(ctx, now, names) })
}

func (s *sandbox) hashOnce(ctx context.Context, now map[string]entry, names []string) error {
	list, err := s.sendList(ctx, names)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	err = s.sh(ctx, "hash the files", rootUser, scripts.Sums, func(b []byte) error {
		if said.Len()+len(b) > maxListing {
			return errTooMuch
		}
		said.Write(b)
		return nil
	}, append([]string{workspacePath}, list...)...)
	if err != nil {
		return pathError(workspacePath, err)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(said.String(), "\x00"), "\x00") {
		sum, name, ok := strings.Cut(line, " ")
		if name = strings.TrimPrefix(strings.TrimPrefix(name, " "), "*"); !ok || len(sum) != 64 {
			continue
		}
		if e, known := now[name]; known {
			e.Sum = sum
			now[name] = e
		}
	}
	return nil
}

// sendList sends names to a file in the machine, which the script that reads it removes, and returns the script's
// arguments for it.
func (s *sandbox) sendList(ctx context.Context, names []string) (args []string, err error) {
	text := strings.Join(names, "\x00") + "\x00"
	to, err := s.sendText(ctx, basePath+"/list.", rootUser, text)
	if err != nil {
		return nil, typed(err, "send a list of names")
	}
	return []string{to, strconv.Itoa(len(text))}, nil
}

// diff lists what differs, in path order.
func diff(was, now map[string]entry) []sdk.Change {
	out := []sdk.Change{}
	for name, n := range now {
		c := sdk.Change{Path: name, Kind: sdk.ChangeAdded, NewMode: n.Mode, Size: n.Size}
		if old, had := was[name]; had {
			c.OldMode, c.Kind = old.Mode, kind(old, n)
		}
		if c.Kind != "" {
			out = append(out, c)
		}
	}
	for name, old := range was {
		if _, still := now[name]; !still {
			out = append(out, sdk.Change{Path: name, Kind: sdk.ChangeDeleted, OldMode: old.Mode})
		}
	}
	slices.SortFunc(out, func(a, b sdk.Change) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// kind names the difference between two looks at one path; "" for none.
func kind(old, now entry) sdk.ChangeKind {
	switch {
	case old.Mode.Type() != now.Mode.Type():
		return sdk.ChangeType
	case old.Link != now.Link:
		return sdk.ChangeSymlink
	case old.Size != now.Size || old.Sum != now.Sum:
		return sdk.ChangeModified
	case old.Mode != now.Mode:
		return sdk.ChangeMode
	}
	return ""
}
