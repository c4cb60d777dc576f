package review

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// fileStat is what Stat and JSON say of one change.
type fileStat struct {
	added, removed int
	note           string
	binary         bool
	hunks          []*Hunk
}

// stats compares the contents of changes.
func (r *Review) stats(ctx context.Context, list []*Change) (map[*Change]fileStat, error) {
	all := make([]fileStat, len(list))
	index := make(map[*Change]int, len(list))
	for i, c := range list {
		index[c] = i
	}
	err := r.each(ctx, io.Discard, list, func(c *Change, project *dir, _ *bytes.Buffer) error {
		t, err := r.content(ctx, c, project)
		if err != nil {
			return err
		}
		s := fileStat{note: t.note, binary: t.binary}
		if t.text != nil {
			s.added, s.removed = t.text.counts()
			s.hunks = t.text.hunks()
		}
		all[index[c]] = s
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make(map[*Change]fileStat, len(all))
	for c, i := range index {
		out[c] = all[i]
	}
	return out, nil
}

// Stat writes a line for every change, and one about all of them.
func (r *Review) Stat(ctx context.Context, w io.Writer, s Style) error {
	list := r.shown()
	stats, err := r.stats(ctx, list)
	if err != nil {
		return err
	}
	width := s.Width
	if width <= 0 {
		width = 80
	}
	names := make([]string, len(list))
	longest, most := 0, 0
	for i, c := range list {
		names[i] = Quote(c.Path)
		if c.isDir() {
			names[i] = Quote(c.Path + "/")
		}
		if c.From != "" {
			names[i] = Quote(c.From) + " => " + names[i]
		}
		longest = max(longest, utf8.RuneCountInString(names[i]))
		most = max(most, stats[c].added+stats[c].removed)
	}
	longest = min(longest, max(width*2/3, 20))
	room := max(width-longest-len(fmt.Sprint(most))-5, 10)
	var b bytes.Buffer
	var files, added, removed int
	for i, c := range list {
		t := stats[c]
		files, added, removed = files+1, added+t.added, removed+t.removed
		fmt.Fprintf(&b, " %s | %s\n", fit(names[i], longest), s.statLine(c, t, most, room))
	}
	fmt.Fprintf(&b, " %s changed", plural(files, "path"))
	if added > 0 {
		fmt.Fprintf(&b, ", %s(+)", plural(added, "insertion"))
	}
	if removed > 0 {
		fmt.Fprintf(&b, ", %s(-)", plural(removed, "deletion"))
	}
	b.WriteByte('\n')
	if len(list) == 0 {
		return nil
	}
	_, err = w.Write(b.Bytes())
	return err
}

// statLine says what a change is, with a bar of as many signs as lines changed, or fewer when that is more than room.
func (s Style) statLine(c *Change, t fileStat, most, room int) string {
	var what []string
	switch {
	case c.isDir() && c.Kind != Mode:
		what = append(what, string(c.Kind)+" directory")
	case c.Kind == Renamed || c.Kind == Relinked || c.Kind == Retyped:
		what = append(what, string(c.Kind))
	}
	if old := c.Old; old.Type != Nothing && c.New.Type == old.Type && old.Mode != c.New.Mode {
		what = append(what, fmt.Sprintf("mode %s to %s", gitMode(old), gitMode(c.New)))
	}
	switch {
	case t.binary:
		what = append(what, fmt.Sprintf("Bin %d -> %d bytes", c.Old.Size, c.New.Size))
	case t.note != "":
		what = append(what, t.note)
	case t.added+t.removed > 0:
		plus, minus := t.added, t.removed
		if most > room {
			plus, minus = scale(plus, most, room), scale(minus, most, room)
		}
		bar := s.paint(green, strings.Repeat("+", plus)) + s.paint(red, strings.Repeat("-", minus))
		what = append(what, fmt.Sprintf("%*d %s", len(fmt.Sprint(most)), t.added+t.removed, bar))
	case len(what) == 0:
		what = append(what, fmt.Sprintf("%*d", len(fmt.Sprint(most)), 0))
	}
	return strings.Join(what, ", ")
}

// scale makes n of most fit into room, and leaves at least one of what is not nothing.
func scale(n, most, room int) int {
	if n == 0 {
		return 0
	}
	return max(1, n*room/most)
}

// fit pads a name to width characters, or cuts its beginning.
func fit(name string, width int) string {
	n := utf8.RuneCountInString(name)
	if n <= width {
		return name + strings.Repeat(" ", width-n)
	}
	runes := []rune(name)
	return "..." + string(runes[n-width+3:])
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
