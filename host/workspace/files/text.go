package files

import (
	"bufio"
	"fmt"
	"io"

	"github.com/hutch-run/hutch/host/termsafe"
)

// The methods of this file write results as text for people. Names and lines of files are hostile: what could act on a
// terminal is made visible in them.

// WriteText writes a line for each entry: mode, layer, size and path, with a slash after a directory and the target
// after a symbolic link.
func (l *Listing) WriteText(w io.Writer) error {
	size := 1
	for _, e := range l.Entries {
		size = max(size, len(fmt.Sprint(e.Size)))
	}
	out := bufio.NewWriterSize(w, 64<<10)
	for _, e := range l.Entries {
		fmt.Fprintln(out, e.text(size))
	}
	return out.Flush()
}

var typeLetters = map[string]string{"file": "-", "directory": "d", "symlink": "l", "fifo": "p", "socket": "s",
	"device": "c"}

func (e *Entry) text(size int) string {
	mode := e.Mode
	if mode == "" {
		mode = "-"
	}
	layer := e.Layer
	if layer == "" {
		layer = "-"
	}
	name := termsafe.Line(e.Path)
	switch {
	case e.Type == "directory":
		name += "/"
	case e.Target != "":
		name += " -> " + termsafe.Line(e.Target)
	}
	return fmt.Sprintf("%s %4s %-6s %*d %s", typeLetters[e.Type], mode, layer, size, e.Size, name)
}

// WriteText writes the entry's facts, one a line.
func (e *Entry) WriteText(w io.Writer) error {
	row := func(name, value string) string { return fmt.Sprintf("%-9s %s\n", name, termsafe.Line(value)) }
	text := row("path", e.Path) + row("type", e.Type)
	if e.Type == "file" {
		text += row("size", fmt.Sprint(e.Size))
	}
	for _, r := range [][2]string{{"mode", e.Mode}, {"layer", e.Layer}, {"target", e.Target}} {
		if r[1] != "" {
			text += row(r[0], r[1])
		}
	}
	if e.Links > 1 {
		text += row("links", fmt.Sprint(e.Links))
	}
	if e.ModTime != nil {
		text += row("modified", e.ModTime.Local().Format("2006-01-02 15:04:05"))
	}
	_, err := io.WriteString(w, text)
	return err
}

// WriteText writes the matches as `grep -n` does: path:line:text, context with - in place of :, and -- where lines are
// left out between those of one file, if there is context.
func (m *Matches) WriteText(w io.Writer, context bool) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for i, f := range m.Files {
		name := termsafe.Line(f.Path)
		if len(f.Lines) == 0 {
			fmt.Fprintln(out, name)
			continue
		}
		last := -1
		for _, l := range f.Lines {
			if context && (last < 0 && i > 0 || last >= 0 && l.Number > last+1) {
				fmt.Fprintln(out, "--")
			}
			last = l.Number
			sep, cut := "-", ""
			if l.Match {
				sep = ":"
			}
			if l.Cut {
				cut = "..."
			}
			fmt.Fprintf(out, "%s%s%d%s%s%s\n", name, sep, l.Number, sep, termsafe.String(l.Text), cut)
		}
	}
	return out.Flush() // which reports every error before it
}
