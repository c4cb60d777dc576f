package record

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/termsafe"
)

// Style says how a tree is written.
type Style struct {
	Color bool
	ASCII bool // for terminals that have no lines to draw with
	Width int  // of the terminal in columns; lines are cut there. 0 cuts nothing
}

// branches are what the lines of a tree are made of.
type branches struct{ tee, corner, bar, gap, more string }

var (
	drawn = branches{"├─ ", "└─ ", "│  ", "   ", "…"}
	typed = branches{"|- ", "`- ", "|  ", "   ", "..."}
)

// row is a line of a tree: its label, outcome, tokens, time and id, each as wide as the widest, and what else there is.
type row struct {
	cells  [5]string
	color  string // of the outcome
	detail string
}

// WriteText draws the tree for a person. Text of others is escaped.
func (n *Node) WriteText(w io.Writer, s Style) error {
	b := drawn
	if s.ASCII {
		b = typed
	}
	var rows []row
	var walk func(n *Node, first, rest string)
	walk = func(n *Node, first, rest string) {
		rows = append(rows, n.row(first))
		for i, c := range n.Children {
			if i == len(n.Children)-1 {
				walk(c, rest+b.corner, rest+b.gap)
			} else {
				walk(c, rest+b.tee, rest+b.bar)
			}
		}
	}
	walk(n, "", "")
	var wide [5]int
	for _, r := range rows {
		for i, cell := range r.cells {
			wide[i] = max(wide[i], termsafe.Columns(cell))
		}
	}
	var text strings.Builder
	for _, r := range rows {
		line, used := "", 0
		for i, cell := range r.cells {
			if wide[i] == 0 {
				continue
			}
			fill := strings.Repeat(" ", wide[i]-termsafe.Columns(cell))
			if cell += fill; i == 2 || i == 3 { // numbers
				cell = fill + strings.TrimSuffix(cell, fill)
			}
			line += s.paint([5]string{1: r.color, 4: "2"}[i], cell) + "  "
			used += wide[i] + 2
		}
		if s.Width > 0 {
			r.detail = cut(r.detail, s.Width-used, b.more)
		}
		text.WriteString(strings.TrimRight(line+r.detail, " ") + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// row is the line of one node.
func (n *Node) row(branch string) row {
	esc := termsafe.Line
	label, tokens, took, detail := esc(n.Name), "", "", esc(n.Detail)
	switch n.Type {
	case NodeAttempt, NodeModel:
		label = fmt.Sprintf("%s %d", n.Type, n.N)
		detail = join(esc(n.Name), detail)
	case NodeState, NodeStep, NodeTool:
	default:
		label = strings.TrimSpace(n.Type + " " + label)
	}
	if u := n.Usage; u != nil && u.InputTokens+u.OutputTokens > 0 {
		tokens = fmt.Sprintf("%s in %s out", count(u.InputTokens), count(u.OutputTokens))
	}
	if n.Took != nil {
		took = span(time.Duration(*n.Took) * time.Millisecond)
	}
	r := row{cells: [5]string{branch + label, esc(n.Outcome), tokens, took, esc(n.ID)}, detail: detail}
	if n.OK != nil {
		r.color = map[bool]string{true: "32", false: "31"}[*n.OK]
	}
	return r
}

func (s Style) paint(color, text string) string {
	if !s.Color || color == "" || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// cut shortens s to room columns.
func cut(s string, room int, more string) string {
	if termsafe.Columns(s) <= room {
		return s
	}
	room -= termsafe.Columns(more)
	if room <= 0 {
		return ""
	}
	used := 0
	for i, r := range s {
		w := termsafe.Columns(string(r))
		if used += w; used > room {
			return s[:i] + more
		}
	}
	return s
}

// count is a number of tokens with three digits or so: 812, 1.2k, 34k, 1.1M.
func count(n int64) string {
	unit := ""
	switch {
	case n >= 1_000_000:
		n, unit = n/100_000, "M"
	case n >= 1_000:
		n, unit = n/100, "k"
	default:
		return fmt.Sprint(n)
	}
	if n >= 100 {
		return fmt.Sprintf("%d%s", n/10, unit)
	}
	return fmt.Sprintf("%d.%d%s", n/10, n%10, unit)
}

// span is a duration with as much of it as matters: 7ms, 1.2s, 34s, 2m05s, 1h02m.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
