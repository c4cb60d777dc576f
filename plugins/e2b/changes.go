package main

import (
	"bytes"
	"context"
	"errors"

	"maps"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/plugins/e2b/scripts"
	"github.com/hutch-run/hutch/sdk"
)

// Changes implements [sdk.ChangeLister]. The machine lists its workspace, and what does not look as it did when no command
// had run yet is compared with what was sent.
func (s *sandbox) Changes(ctx context.Context) ([]sdk.Change, error) {
	if s.spec.Workspace.Source == "" {
		return nil, nil
	}
	now, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.hash(ctx, now); err != nil {
		return nil, err
	}
	return diff(s.base.Entries, now), nil
}

// list asks the machine for everything in the workspace.
func (s *sandbox) list(ctx context.Context) (map[string]entry, error) {
	l := newListing()
	if err := s.sh(ctx, "list the workspace", rootUser, scripts.List, l.write, append([]string{workspacePath}, besides(&s.spec)...)...); err != nil {
		return nil, err
	}
	return l.entries()
}

// hash has the files hashed of which it is not clear otherwise whether they are what was sent, and notes what is known of the
// others.
func (s *sandbox) hash(ctx context.Context, now map[string]entry) error {
	var ask []string
	for name, e := range now {
		was, had := s.base.Entries[name]
		switch {
		case !had || e.Type != 'f' || was.Type != 'f' || e.Size != was.Size || was.Sum == "":
		case e.Stamp == was.Stamp:
			e.Sum = was.Sum
			now[name] = e
		default:
			ask = append(ask, name)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	slices.Sort(ask)
	list, err := s.sendList(ctx, ask)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	err = s.sh(ctx, "hash the files", rootUser, scripts.Sums, func(b []byte) error {
		if said.Len()+len(b) > maxListing {
			return errors.New("the machine says more about its files than can be")
		}
		said.Write(b)
		return nil
	}, workspacePath, list)
	if err != nil {
		return err
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

// sendList sends names to a file in the machine, each ended by a NUL, and returns its path.
func (s *sandbox) sendList(ctx context.Context, names []string) (string, error) {
	d, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	to, err := s.sendText(ctx, d, basePath+"/list.", rootUser, strings.Join(names, "\x00")+"\x00")
	if err != nil {
		s.lost(err)
		return "", typed(err, "send a list of names")
	}
	return to, nil
}

// diff lists what differs, in path order.
func diff(was, now map[string]entry) []sdk.Change {
	out := []sdk.Change{}
	for name, n := range now {
		c := sdk.Change{Path: name, Kind: sdk.ChangeAdded, NewMode: n.fileMode(), Size: n.Size}
		if old, had := was[name]; had {
			c.OldMode = old.fileMode()
			if c.Kind = kind(old, n); c.Kind == "" {
				continue
			}
		}
		out = append(out, c)
	}
	for _, name := range slices.Collect(maps.Keys(was)) {
		if _, still := now[name]; !still {
			out = append(out, sdk.Change{Path: name, Kind: sdk.ChangeDeleted, OldMode: was[name].fileMode()})
		}
	}
	slices.SortFunc(out, func(a, b sdk.Change) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// kind names the difference between two looks at one path; "" for none.
func kind(old, now entry) sdk.ChangeKind {
	switch {
	case old.Type != now.Type:
		return sdk.ChangeType
	case old.Type == 'l' && old.Link != now.Link:
		return sdk.ChangeSymlink
	case old.Type == 'l':
		return ""
	case old.Type == 'f' && (old.Size != now.Size || old.Sum != now.Sum):
		return sdk.ChangeModified
	case old.Mode != now.Mode:
		return sdk.ChangeMode
	}
	return ""
}
