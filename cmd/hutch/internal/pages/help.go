package pages

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Help writes the help of one command for a terminal of so many columns; 0 means 80.
func Help(w io.Writer, n *kong.Node, width int) error {
	h := newHelp(width)
	for i, u := range usage(n) {
		h.line([]string{"Usage: ", "       "}[min(i, 1)] + u)
	}
	if n.Help != "" {
		h.line("")
		h.wrap(n.Help, 0)
	}
	for _, b := range blocks(n.Detail) {
		h.line("")
		if b.code {
			h.line("  " + strings.ReplaceAll(b.text, "\n", "\n  "))
		} else {
			h.wrap(b.text, 0)
		}
	}
	h.commands(n)
	if len(n.Positional) > 0 {
		h.line("\nArguments:")
		var rows [][2]string
		for _, p := range n.Positional {
			rows = append(rows, [2]string{"  " + strings.ToUpper(p.Name), p.Help})
		}
		h.rows(rows)
	}
	for _, g := range grouped(n) {
		h.line("\n" + g.title + ":")
		var rows [][2]string
		for _, f := range g.flags {
			rows = append(rows, [2]string{"  " + flagName(f, true), f.Help})
		}
		h.rows(rows)
	}
	if len(visible(n.Children)) > 0 {
		h.line(fmt.Sprintf("\n%s COMMAND --help says more about one.", n.FullPath()))
	}
	_, err := io.WriteString(w, h.String())
	return err
}

// Topics writes the list of pages of the documentation, each a name and a title, as Help does.
func Topics(w io.Writer, rows [][2]string, width int) error {
	h := newHelp(width)
	h.line("\nTopics, for hutch help TOPIC:")
	for i := range rows {
		rows[i][0] = "  " + rows[i][0]
	}
	h.rows(rows)
	_, err := io.WriteString(w, h.String())
	return err
}

type help struct {
	strings.Builder
	width int
}

func newHelp(width int) *help {
	if width <= 0 {
		width = 80
	}
	return &help{width: min(max(width, 50), 110)}
}

func (h *help) line(s string) { h.WriteString(s + "\n") }

func (h *help) commands(n *kong.Node) {
	var titles []string
	byTitle := map[string][][2]string{}
	for _, c := range visible(n.Children) {
		title := "Commands"
		if c.Group != nil {
			title = c.Group.Title
		}
		if _, ok := byTitle[title]; !ok {
			titles = append(titles, title)
		}
		byTitle[title] = append(byTitle[title], [2]string{"  " + c.Name, c.Help})
	}
	for _, t := range titles {
		h.line("\n" + t + ":")
		h.rows(byTitle[t])
	}
}

// rows writes two columns; a left side that is too long has a line to itself.
func (h *help) rows(rows [][2]string) {
	left := 0
	for _, r := range rows {
		if n := len(r[0]); n <= 30 {
			left = max(left, n)
		}
	}
	for _, r := range rows {
		if len(r[0]) > left {
			h.line(r[0])
			r[0] = ""
		}
		h.WriteString(fmt.Sprintf("%-*s  ", left, r[0]))
		h.wrap(r[1], left+2)
	}
}

// wrap breaks text into lines that begin at column indent, the first of which has been begun already.
func (h *help) wrap(text string, indent int) {
	col := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case col+1+len(word) > h.width:
			h.WriteString("\n" + strings.Repeat(" ", indent))
			col = indent
		default:
			h.WriteByte(' ')
			col++
		}
		h.WriteString(word)
		col += len(word)
	}
	h.WriteByte('\n')
}
