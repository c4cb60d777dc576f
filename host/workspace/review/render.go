package review

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"

	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Style says how a difference is written.
type Style struct {
	Color    bool
	Terminal bool // contents are escaped; without it they are written as they are, so that the output is a patch
	Width    int  // of the terminal in characters, for [Review.Stat]; 0 means 80
}

func (s Style) paint(color, text string) string { return termsafe.Paint(s.Color, color, text) }

// Unified writes all changes as a patch that git and patch(1) understand. Directories that are empty or change their
// mode, of which a patch knows nothing, are lines of their own which those skip.
func (r *Review) Unified(ctx context.Context, w io.Writer, s Style) error {
	return r.each(ctx, w, Shown(r.Changes), func(c *Change, project *dir, b *bytes.Buffer) error {
		t, err := r.content(ctx, c, project)
		if err != nil {
			return err
		}
		s.change(b, c, t)
		return nil
	})
}

// Shown are changes but for directories that are new or gone and have changes in them, which say it already.
func Shown(list []*Change) []*Change {
	busy := busy(list)
	return slices.DeleteFunc(slices.Clone(list), func(c *Change) bool {
		return c.isDir() && c.Kind != Mode && busy[c.Path]
	})
}

// busy are the directories with changes in them.
func busy(list []*Change) map[string]bool {
	dirs := map[string]bool{}
	for _, c := range list {
		for _, part := range c.parts() {
			for p := parentOf(part.Path); p != "" && !dirs[p]; p = parentOf(p) {
				dirs[p] = true
			}
		}
	}
	return dirs
}

// Names writes the path of every change, one a line.
func (r *Review) Names(w io.Writer) error {
	var b strings.Builder
	for _, c := range Shown(r.Changes) {
		b.WriteString(Quote(c.Path))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// atOnce is how many changes are worked on before they are written, so that memory stays bounded.
const atOnce = 256

// each calls render for the changes, several at a time, and writes what they made in order.
func (r *Review) each(ctx context.Context, w io.Writer, list []*Change,
	render func(*Change, *dir, *bytes.Buffer) error) error {
	workers := max(1, min(runtime.GOMAXPROCS(0), 8))
	dirs := make([]*dir, workers)
	for i := range dirs {
		d, err := openDir(r.Subject.Project)
		if err != nil {
			return err
		}
		defer d.close()
		dirs[i] = d
	}
	for at := 0; at < len(list); at += atOnce {
		batch := list[at:min(at+atOnce, len(list))]
		out, errs := make([]bytes.Buffer, len(batch)), make([]error, len(batch))
		var wg sync.WaitGroup
		for n := range workers {
			wg.Go(func() {
				for i := n; i < len(batch); i += workers {
					errs[i] = render(batch[i], dirs[n], &out[i])
				}
			})
		}
		wg.Wait()
		for i := range batch {
			if errs[i] != nil {
				return fmt.Errorf("%s: %w", Quote(batch[i].Path), errs[i])
			}
			if _, err := w.Write(out[i].Bytes()); err != nil {
				return err
			}
		}
	}
	return nil
}

// change writes one change.
func (s Style) change(b *bytes.Buffer, c *Change, t content) {
	if c.isDir() {
		s.directory(b, c)
		return
	}
	if c.Kind == Retyped {
		s.retyped(b, c, t)
		return
	}
	if c.Old.Type == Special || c.New.Type == Special { // no patch has these: git apply would make an empty file
		s.special(b, c)
		return
	}
	s.header(b, c)
	switch {
	case t.note != "":
		s.note(b, c, t.note)
	case t.text != nil && len(t.text.spans) > 0:
		s.names(b, c.Path, c.Old.Type, c.New.Type)
		for _, h := range t.text.hunks() {
			s.Hunk(b, h)
		}
	case c.Old.Type == Symlink || c.New.Type == Symlink:
		s.link(b, c)
	}
}

// directory writes what a patch cannot say.
func (s Style) directory(b *bytes.Buffer, c *Change) {
	switch c.Kind {
	case Added:
		fmt.Fprintf(b, "%s\n", s.paint(termsafe.Bold, fmt.Sprintf("new directory %s mode %s", Quote(c.Path+"/"),
			gitMode(c.New))))
	case Deleted:
		fmt.Fprintf(b, "%s\n", s.paint(termsafe.Bold, "deleted directory "+Quote(c.Path+"/")))
	default:
		fmt.Fprintf(b, "%s\n", s.paint(termsafe.Bold, fmt.Sprintf("directory %s mode %s to %s", Quote(c.Path+"/"),
			gitMode(c.Old), gitMode(c.New))))
	}
}

// special names a FIFO, a socket or a device in a line that programs which apply patches pass over.
func (s Style) special(b *bytes.Buffer, c *Change) {
	what := map[Kind]string{Added: "new special file ", Deleted: "deleted special file "}[c.Kind]
	if what == "" {
		what = "changed special file "
	}
	fmt.Fprintf(b, "%s\n", s.paint(termsafe.Bold, what+Quote(c.Path)))
}

// retyped writes what was there as deleted and what is there as new, as git does.
func (s Style) retyped(b *bytes.Buffer, c *Change, t content) {
	gone, fresh := *c, *c
	gone.Kind, gone.New, fresh.Kind, fresh.Old = Deleted, Node{}, Added, Node{}
	half := func(c *Change, take func(*textDiff) *textDiff) {
		part := content{note: t.note, binary: t.binary}
		if t.text != nil && (c.Old.Type == File || c.New.Type == File) {
			part.text = take(t.text)
		}
		if c.Old.Type != File && c.New.Type != File {
			part = content{}
		}
		s.change(b, c, part)
	}
	half(&gone, func(t *textDiff) *textDiff { return diffText([]byte(strings.Join(t.old, "")), nil) })
	half(&fresh, func(t *textDiff) *textDiff { return diffText(nil, []byte(strings.Join(t.new, ""))) })
}

func (s Style) header(b *bytes.Buffer, c *Change) {
	from := c.Path
	if c.From != "" {
		from = c.From
	}
	line := func(format string, args ...any) {
		b.WriteString(s.paint(termsafe.Bold, fmt.Sprintf(format, args...)+"\n"))
	}
	line("diff --git %s %s", Quote("a/"+from), Quote("b/"+c.Path))
	switch {
	case c.Kind == Renamed:
		if old := c.from.Old; old.Mode != c.New.Mode {
			line("old mode %s", gitMode(old))
			line("new mode %s", gitMode(c.New))
		}
		line("similarity index 100%%")
		line("rename from %s", Quote(from))
		line("rename to %s", Quote(c.Path))
	case c.Old.Type == Nothing:
		line("new file mode %s", gitMode(c.New))
	case c.New.Type == Nothing:
		line("deleted file mode %s", gitMode(c.Old))
	case c.Old.Mode != c.New.Mode:
		line("old mode %s", gitMode(c.Old))
		line("new mode %s", gitMode(c.New))
	}
}

func (s Style) names(b *bytes.Buffer, path string, old, now Type) {
	from, to := Quote("a/"+path), Quote("b/"+path)
	if old == Nothing {
		from = "/dev/null"
	}
	if now == Nothing {
		to = "/dev/null"
	}
	// Names with a space end with a tab, or patch(1) takes what follows it for a date.
	tab := func(name string) string {
		if strings.Contains(name, " ") {
			return name + "\t"
		}
		return name
	}
	b.WriteString(s.paint(termsafe.Bold, "--- "+tab(from)+"\n"))
	b.WriteString(s.paint(termsafe.Bold, "+++ "+tab(to)+"\n"))
}

// note writes why no lines are shown.
func (s Style) note(b *bytes.Buffer, c *Change, note string) {
	from, to := Quote("a/"+c.Path), Quote("b/"+c.Path)
	if c.Old.Type == Nothing {
		from = "/dev/null"
	}
	if c.New.Type == Nothing {
		to = "/dev/null"
	}
	if note == "binary" {
		fmt.Fprintf(b, "Binary files %s and %s differ\n", from, to)
		return
	}
	fmt.Fprintf(b, "Files %s and %s differ, %s\n", from, to, termsafe.Line(note))
}

// link writes a symbolic link as git does: its target as a line without an end.
func (s Style) link(b *bytes.Buffer, c *Change) {
	var old, now []byte
	if c.Old.Type == Symlink {
		old = []byte(c.Old.Link)
	}
	if c.New.Type == Symlink {
		now = []byte(c.New.Link)
	}
	s.names(b, c.Path, c.Old.Type, c.New.Type)
	for _, h := range diffText(old, now).hunks() {
		s.Hunk(b, h)
	}
}

// Hunk writes one hunk.
func (s Style) Hunk(b *bytes.Buffer, h *Hunk) {
	b.WriteString(s.paint(termsafe.Cyan, h.Header()+"\n"))
	for _, l := range h.Lines {
		text, ended := strings.CutSuffix(l, "\n")
		if s.Terminal {
			text = l[:1] + termsafe.String(text[1:])
		}
		if color := map[byte]string{'-': termsafe.Red, '+': termsafe.Green}[l[0]]; color != "" {
			text = s.paint(color, text)
		}
		b.WriteString(text + "\n")
		if !ended {
			b.WriteString("\\ No newline at end of file\n")
		}
	}
}

// Header is the first line of a hunk in a unified diff.
func (h *Hunk) Header() string {
	part := func(start, lines int) string {
		if lines == 1 {
			return strconv.Itoa(start)
		}
		return strconv.Itoa(start) + "," + strconv.Itoa(lines)
	}
	return "@@ -" + part(h.OldStart, h.OldLines) + " +" + part(h.NewStart, h.NewLines) + " @@"
}

// gitMode writes type and permissions as git does, but all of the permissions.
func gitMode(n Node) string {
	switch n.Type {
	case File:
		return fmt.Sprintf("10%04o", safefile.Bits(n.Mode))
	case Directory:
		return fmt.Sprintf("04%04o", safefile.Bits(n.Mode))
	case Symlink:
		return "120000"
	}
	return fmt.Sprintf("00%04o", safefile.Bits(n.Mode))
}

// Quote writes a path as git does: as it is, or in quotes with escapes when it holds anything that could be taken for
// something else, on a terminal too.
func Quote(p string) string {
	if !needsQuotes(p) {
		return p
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(p); {
		c, n := utf8.DecodeRuneInString(p[i:])
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == utf8.RuneError && n == 1 || !strconv.IsPrint(c):
			for _, x := range []byte(p[i : i+n]) {
				fmt.Fprintf(&b, `\%03o`, x)
			}
		default:
			b.WriteString(p[i : i+n])
		}
		i += n
	}
	b.WriteByte('"')
	return b.String()
}

func needsQuotes(p string) bool {
	for i := 0; i < len(p); {
		c, n := utf8.DecodeRuneInString(p[i:])
		if c == '"' || c == '\\' || c == utf8.RuneError && n == 1 || !strconv.IsPrint(c) {
			return true
		}
		i += n
	}
	return false
}

// UnifiedText is the difference between two texts as the hunks of a unified diff, escaped for a terminal where s says
// so. It is false when one of them is no text or is longer than what is compared line by line.
func UnifiedText(old, new []byte, s Style) (string, bool) {
	for _, b := range [][]byte{old, new} {
		if len(b) > maxText || isBinary(b) || !utf8.Valid(b) {
			return "", false
		}
	}
	var b bytes.Buffer
	for _, h := range diffText(old, new).hunks() {
		s.Hunk(&b, h)
	}
	return b.String(), true
}

// fileStat is what Stat and JSON say of one change.
type fileStat struct {
	added, removed int
	note           string
	binary         bool
	hunks          []*Hunk
}

// stats compares the contents of changes, and returns what is found in their order.
func (r *Review) stats(ctx context.Context, list []*Change) ([]fileStat, error) {
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
	return all, err
}

// Stat writes a line for every change, and one about all of them.
func (r *Review) Stat(ctx context.Context, w io.Writer, s Style) error {
	list := Shown(r.Changes)
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
		most = max(most, stats[i].added+stats[i].removed)
	}
	longest = min(longest, max(width*2/3, 20))
	room := max(width-longest-len(fmt.Sprint(most))-5, 10)
	var b bytes.Buffer
	var files, added, removed int
	for i, c := range list {
		t := stats[i]
		files, added, removed = files+1, added+t.added, removed+t.removed
		fmt.Fprintf(&b, " %s | %s\n", fit(names[i], longest), s.statLine(c, t, most, room))
	}
	fmt.Fprintf(&b, " %s changed", english.Plural(files, "path", ""))
	if added > 0 {
		fmt.Fprintf(&b, ", %s(+)", english.Plural(added, "insertion", ""))
	}
	if removed > 0 {
		fmt.Fprintf(&b, ", %s(-)", english.Plural(removed, "deletion", ""))
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
		bar := s.paint(termsafe.Green, strings.Repeat("+", plus)) + s.paint(termsafe.Red, strings.Repeat("-", minus))
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
