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

// row is a line of a tree, in columns.
type row struct {
	label, outcome, tokens, took, id, detail string
	color                                    string // of the outcome
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
		for i, cell := range []string{r.label, r.outcome, r.tokens, r.took, r.id} {
			wide[i] = max(wide[i], termsafe.Columns(cell))
		}
	}
	var text strings.Builder
	for _, r := range rows {
		cells := []string{
			pad(r.label, wide[0], false), s.paint(r.color, pad(r.outcome, wide[1], false)),
			pad(r.tokens, wide[2], true), pad(r.took, wide[3], true), s.paint("2", pad(r.id, wide[4], false)),
		}
		line, used := "", 0
		for i, c := range cells {
			if wide[i] > 0 {
				line += c + "  "
				used += wide[i] + 2
			}
		}
		if r.detail != "" {
			detail := r.detail
			if s.Width > 0 {
				detail = cut(detail, s.Width-used, b.more)
			}
			line += detail
		}
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// row is the line of one node.
func (n *Node) row(branch string) row {
	esc := termsafe.Line
	r := row{outcome: esc(n.Outcome), id: esc(n.ID), detail: esc(n.Detail)}
	switch n.Type {
	case NodeAttempt:
		r.label = fmt.Sprintf("attempt %d", n.N)
	case NodeModel:
		r.label = fmt.Sprintf("model %d", n.N)
		r.detail = join(esc(n.Name), r.detail)
	case NodeState, NodeStep, NodeTool:
		r.label = esc(n.Name)
	default:
		r.label = n.Type + " " + esc(n.Name)
	}
	r.label = branch + strings.TrimSpace(r.label)
	if n.OK != nil {
		r.color = "31"
		if *n.OK {
			r.color = "32"
		}
	}
	if u := n.Usage; u != nil && u.InputTokens+u.OutputTokens > 0 {
		r.tokens = fmt.Sprintf("%s in %s out", count(u.InputTokens), count(u.OutputTokens))
	}
	if n.Took != nil {
		r.took = span(time.Duration(*n.Took))
	}
	return r
}

func (s Style) paint(color, text string) string {
	if !s.Color || color == "" || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func pad(s string, width int, right bool) string {
	fill := strings.Repeat(" ", width-termsafe.Columns(s))
	if right {
		return fill + s
	}
	return s + fill
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
	for _, u := range []struct {
		per  int64
		name string
	}{{1_000_000, "M"}, {1_000, "k"}} {
		switch {
		case n >= 10*u.per:
			return fmt.Sprintf("%d%s", n/u.per, u.name)
		case n >= u.per:
			return fmt.Sprintf("%d.%d%s", n/u.per, n%u.per*10/u.per, u.name)
		}
	}
	return fmt.Sprint(n)
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
