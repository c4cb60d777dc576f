package review

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/termsafe"
)

// Asker asks a person about each change, as `git add -p` does.
type Asker struct {
	In    *bufio.Reader
	Out   io.Writer
	Style Style
	Allow map[judge.Rule]bool // what is refused under it is printed and not asked
}

// part is one thing to say yes or no to: a hunk, the change of permissions, or the whole change.
type part struct {
	hunk   *Hunk // nil for the others
	mode   bool
	answer answer
}

type answer int

const (
	undecided answer = iota
	yes
	no
)

// Ask goes through the changes and returns what was chosen. The end of the input counts as q.
func (a *Asker) Ask(ctx context.Context, r *Review) ([]Pick, error) {
	busy := busy(r.Changes)
	var picks []Pick
	for _, c := range r.Changes {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		switch {
		case c.Left != "" && !a.Allow[judge.Git]:
			continue
		case c.isDir() && c.Kind != Mode && busy[c.Path]:
			// It is made when something in it is applied. Whether it goes is not asked either: it does when all in it does.
			if c.Kind == Deleted {
				picks = append(picks, Pick{Change: c, Whole: true})
			}
			continue
		case len(c.Against(a.Allow)) > 0 && !onlyModes(c.Against(a.Allow), c):
			f := c.Against(a.Allow)[0]
			a.tell("%s is left out: %s%s", Quote(c.Path), f.Detail, allowedBy(f.Rule))
			continue
		}
		pick, quit, err := a.change(ctx, r, c)
		if err != nil {
			return nil, err
		}
		if pick.Whole || pick.Mode || len(pick.Hunks) > 0 {
			picks = append(picks, pick)
		}
		if quit {
			break
		}
	}
	return picks, nil
}

func (a *Asker) tell(format string, args ...any) { fmt.Fprintf(a.Out, format+"\n", args...) }

// allowedBy names the flag in a sentence.
func allowedBy(r judge.Rule) string {
	if flag := r.Flag(); flag != "" {
		return " (" + flag + ")"
	}
	return ""
}

// onlyModes reports whether refusals are about the permissions of a file whose content can be had without them.
func onlyModes(list []judge.Finding, c *Change) bool {
	if c.Kind != Modified {
		return false
	}
	for _, f := range list {
		if f.Rule != judge.Exec && f.Rule != judge.SetID && f.Rule != judge.WorldWritable {
			return false
		}
	}
	return true
}

// change asks about one change.
func (a *Asker) change(ctx context.Context, r *Review, c *Change) (pick Pick, quit bool, err error) {
	t, err := r.content(ctx, c, r.project)
	if err != nil {
		return Pick{}, false, err
	}
	if c.Conflict != "" {
		lines, err := r.Explain(ctx, c)
		if err != nil {
			return Pick{}, false, err
		}
		a.tell("conflict: %s: %s", Quote(c.Path), c.Conflict)
		for _, l := range lines {
			a.tell("  %s", l)
		}
		a.tell("What follows leads from the project's version to the sandbox's, and may take back what the project's side " +
			"changed.")
	}
	for _, m := range c.Marks {
		a.tell("note: %s: %s", Quote(c.Path), m)
	}
	parts := a.parts(c, t)
	var b bytes.Buffer
	if parts[0].hunk != nil || parts[0].mode {
		a.Style.header(&b, c)
		a.Style.names(&b, c.Path, c.Old.Type, c.New.Type)
	} else {
		a.Style.change(&b, c, t)
	}
	if _, err := a.Out.Write(b.Bytes()); err != nil {
		return Pick{}, false, err
	}
	at := 0
	for {
		p := parts[at]
		if p.hunk != nil {
			b.Reset()
			a.Style.Hunk(&b, p.hunk)
			if _, err := a.Out.Write(b.Bytes()); err != nil {
				return Pick{}, false, err
			}
		}
		key, err := a.key(c, parts, at)
		if err != nil {
			return Pick{}, false, err
		}
		switch key {
		case 'y':
			p.answer = yes
		case 'n':
			p.answer = no
		case 'a', 'd', 'q':
			for _, rest := range parts[at:] {
				if rest.answer == undecided || rest == p {
					rest.answer = no
					if key == 'a' {
						rest.answer = yes
					}
				}
			}
			if key == 'q' {
				return collect(c, parts), true, nil
			}
		case 'j':
			at = next(parts, at, 1)
			continue
		case 'k':
			at = next(parts, at, -1)
			continue
		case 'J':
			at++
			continue
		case 'K':
			at--
			continue
		case 's':
			var split []*part
			for _, h := range t.text.split(p.hunk) {
				split = append(split, &part{hunk: h})
			}
			parts = append(parts[:at:at], append(split, parts[at+1:]...)...)
			a.tell("Split into %d hunks.", len(split))
			continue
		}
		i := next(parts, at, 1)
		if i < 0 {
			i = next(parts, -1, 1)
		}
		if i < 0 {
			return collect(c, parts), false, nil
		}
		at = i
	}
}

// parts cuts a change into what is asked one by one.
func (a *Asker) parts(c *Change, t content) []*part {
	if c.Old.Type != File || c.New.Type != File || c.Kind == Renamed || t.text == nil || len(t.text.spans) == 0 {
		return []*part{{}}
	}
	var list []*part
	if c.Old.Mode != c.New.Mode {
		if f := c.Against(a.Allow); len(f) > 0 {
			a.tell("the new mode of %s is left out: %s%s", Quote(c.Path), f[0].Detail, allowedBy(f[0].Rule))
		} else {
			list = append(list, &part{mode: true})
		}
	}
	for _, h := range t.text.hunks() {
		list = append(list, &part{hunk: h})
	}
	return list
}

// next finds the nearest undecided part in a direction; -1 for none.
func next(parts []*part, at, step int) int {
	for i := at + step; i >= 0 && i < len(parts); i += step {
		if parts[i].answer == undecided {
			return i
		}
	}
	return -1
}

// collect makes a pick of the answers.
func collect(c *Change, parts []*part) Pick {
	pick := Pick{Change: c, Settled: c.Conflict != ""}
	for _, p := range parts {
		switch {
		case p.answer != yes:
		case p.hunk != nil:
			pick.Hunks = append(pick.Hunks, p.hunk)
		case p.mode:
			pick.Mode = true
		default:
			pick.Whole = true
		}
	}
	return pick
}

// errNoAnswer ends a conversation with somebody who never says anything that is understood.
var errNoAnswer = errors.New("no answer was understood in 100 tries")

// key asks until one of the keys that are possible here is given.
func (a *Asker) key(c *Change, parts []*part, at int) (byte, error) {
	keys := []byte("ynqad")
	if next(parts, at, 1) >= 0 {
		keys = append(keys, 'j')
	}
	if at+1 < len(parts) {
		keys = append(keys, 'J')
	}
	if next(parts, at, -1) >= 0 {
		keys = append(keys, 'k')
	}
	if at > 0 {
		keys = append(keys, 'K')
	}
	if h := parts[at].hunk; h != nil && h.last-h.first > 1 {
		keys = append(keys, 's')
	}
	keys = append(keys, '?')
	for range 100 {
		prompt := fmt.Sprintf("(%d/%d) Apply %s [%s]? ", at+1, len(parts), question(c, parts[at]),
			strings.Join(strings.Split(string(keys), ""), ","))
		if a.Style.Color {
			prompt = termsafe.Paint(true, termsafe.BoldBlue, prompt)
		}
		if _, err := io.WriteString(a.Out, prompt); err != nil {
			return 0, err
		}
		line, err := a.In.ReadString('\n')
		line = strings.TrimSpace(line)
		if err != nil && line == "" {
			fmt.Fprintln(a.Out)
			if errors.Is(err, io.EOF) {
				return 'q', nil
			}
			return 0, err
		}
		if len(line) == 1 && line != "?" && bytes.IndexByte(keys, line[0]) >= 0 {
			return line[0], nil
		}
		if _, err := io.WriteString(a.Out, help(keys)); err != nil {
			return 0, err
		}
	}
	return 0, errNoAnswer
}

func question(c *Change, p *part) string {
	switch {
	case p.hunk != nil:
		return "this hunk"
	case p.mode:
		return fmt.Sprintf("the mode change from %s to %s", gitMode(c.Old), gitMode(c.New))
	}
	switch c.Kind {
	case Added:
		return "this addition"
	case Deleted:
		return "this deletion"
	case Renamed:
		return "this renaming"
	}
	return "this change"
}

// help explains the keys.
func help(keys []byte) string {
	words := map[byte]string{
		'y': "apply it",
		'n': "do not apply it",
		'q': "quit: neither this nor anything that remains; what was chosen before is applied",
		'a': "apply it and all that remain in the file",
		'd': "apply neither it nor any that remain in the file",
		'j': "decide later, go to the next undecided hunk",
		'J': "decide later, go to the next hunk",
		'k': "decide later, go to the previous undecided hunk",
		'K': "decide later, go to the previous hunk",
		's': "split it into smaller hunks",
		'?': "show this help",
	}
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%c - %s\n", k, words[k])
	}
	return b.String()
}

// HunkRef names hunks of one file: 0 is the change of its permissions, 1 the first hunk that diff shows.
type HunkRef struct {
	Path    string
	Numbers []int // ascending, each once
}

// String is what [ParseHunks] reads.
func (r HunkRef) String() string {
	return r.Path + ":" + strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Numbers), " ", ","), "[]")
}

// maxHunkNumber bounds what a range may stand for.
const maxHunkNumber = 1_000_000

// ParseHunks reads FILE:1,3-5. The file's name may hold colons.
func ParseHunks(s string) (HunkRef, error) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || i == len(s)-1 {
		return HunkRef{}, fmt.Errorf("%q does not name hunks: write FILE:1,3-5 with the numbers that diff counts", s)
	}
	r := HunkRef{Path: path.Clean(s[:i])}
	for part := range strings.SplitSeq(s[i+1:], ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := hunkNumber(from)
		b := a
		if err == nil && isRange {
			b, err = hunkNumber(to)
		}
		if err == nil && b < a {
			err = fmt.Errorf("the range %q is upside down", part)
		}
		if err == nil && b-a >= 10_000 {
			err = fmt.Errorf("the range %q is longer than 10000", part)
		}
		if err != nil {
			return HunkRef{}, fmt.Errorf("%q: %w", s, err)
		}
		for n := a; n <= b; n++ {
			r.Numbers = append(r.Numbers, n)
		}
	}
	slices.Sort(r.Numbers)
	r.Numbers = slices.Compact(r.Numbers)
	return r, nil
}

func hunkNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > maxHunkNumber {
		return 0, fmt.Errorf("%q is not the number of a hunk", s)
	}
	return int(n), nil
}

// PickHunks picks the named hunks. Those of a file in conflict, which lead from the project's version to the sandbox's,
// count as a decision about it.
func (r *Review) PickHunks(ctx context.Context, refs []HunkRef) ([]Pick, error) {
	merged := map[*Change]*Pick{}
	var order []*Change
	for _, ref := range refs {
		rel, err := r.Subject.paths([]string{ref.Path})
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(r.Changes, func(c *Change) bool { return c.Path == rel[0] })
		if i < 0 {
			return nil, fmt.Errorf("nothing changed at %s", Quote(ref.Path))
		}
		c := r.Changes[i]
		t, err := r.content(ctx, c, r.project)
		if err != nil {
			return nil, err
		}
		if c.Old.Type != File || c.New.Type != File || t.note != "" {
			return nil, fmt.Errorf("%s has no hunks: %s", Quote(ref.Path), cmp.Or(t.note, "it is "+string(c.Kind)+" as a whole"))
		}
		pick := merged[c]
		if pick == nil {
			pick = &Pick{Change: c, Settled: c.Conflict != ""}
			merged[c], order = pick, append(order, c)
		}
		var hunks []*Hunk
		if t.text != nil {
			hunks = t.text.hunks()
		}
		for _, n := range ref.Numbers {
			switch {
			case n == 0 && c.Old.Mode == c.New.Mode:
				return nil, fmt.Errorf("%s keeps its mode: there is no hunk 0", Quote(ref.Path))
			case n == 0:
				pick.Mode = true
			case n > len(hunks):
				return nil, fmt.Errorf("%s has %s, not %d", Quote(ref.Path), english.Plural(len(hunks), "hunk", ""), n)
			default:
				pick.Hunks = append(pick.Hunks, hunks[n-1])
			}
		}
	}
	var picks []Pick
	for _, c := range order {
		picks = append(picks, *merged[c])
	}
	return picks, nil
}
