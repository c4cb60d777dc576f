package ingest

import "strings"

// v4a reads the patches of OpenAI's apply_patch tool:
//
//	*** Begin Patch
//	*** Update File: src/main.py
//	*** Move to: src/app.py
//	@@ def main():
//	 context
//	-old
//	+new
//	*** Add File: notes.txt
//	+text
//	*** Delete File: old.txt
//	*** End Patch
func (p *parser) v4a(src source) {
	begun, ended := false, false
	var c *Change
	var h *Hunk
	flush := func() {
		if c == nil {
			return
		}
		if h != nil {
			c.Hunks = append(c.Hunks, *h)
			h = nil
		}
		p.v4aChange(*c)
		c = nil
	}
	for i, line := range src.lines {
		at := src.first + i
		op, name, header := v4aHeader(line)
		switch {
		case strings.HasPrefix(line, "*** Begin Patch"):
			flush()
			begun, ended = true, false
		case strings.HasPrefix(line, "*** End Patch"):
			flush()
			ended = true
		case header && !ended:
			flush()
			begun = true
			c = &Change{Op: op, Path: name, Line: at}
		case c == nil:
			if begun && !ended && strings.TrimSpace(line) != "" {
				p.problem(Problem{Line: at, Message: "this line belongs to no file", Hint: "begin with *** Update File: PATH, *** Add File: PATH or *** Delete File: PATH"})
				return
			}
		case strings.HasPrefix(line, "*** Move to: "):
			c.To = strings.TrimSpace(strings.TrimPrefix(line, "*** Move to: "))
			if c.Op != Update {
				p.problem(Problem{Path: c.Path, Line: at, Message: "only a file that is updated can be moved"})
			}
		case strings.HasPrefix(line, "*** End of File"):
			if h != nil {
				h.AtEnd = true
			}
		case c.Op == Add:
			text, ok := strings.CutPrefix(line, "+")
			if !ok && strings.TrimSpace(line) != "" {
				p.problem(Problem{Path: c.Path, Line: at, Message: "all lines of a new file begin with +"})
				return
			}
			if ok {
				c.Content = append(append(c.Content, text...), '\n')
			}
		case c.Op == Delete:
			if strings.TrimSpace(line) != "" {
				p.problem(Problem{Path: c.Path, Line: at, Message: "nothing follows on *** Delete File"})
				return
			}
		case strings.HasPrefix(line, "@@"):
			anchor := strings.TrimSpace(strings.TrimPrefix(line, "@@"))
			anchor = strings.TrimSpace(strings.TrimSuffix(anchor, "@@"))
			if h != nil && len(h.Lines) > 0 {
				c.Hunks = append(c.Hunks, *h)
				h = nil
			}
			if h == nil {
				h = &Hunk{Line: at}
			}
			if anchor != "" && !strings.HasPrefix(anchor, "-") { // @@ -1,2 +1,2 @@ says nothing here
				h.Anchors = append(h.Anchors, anchor)
			}
		default:
			if h == nil {
				h = &Hunk{Line: at}
			}
			if line == "" {
				line = " "
			}
			if line[0] != ' ' && line[0] != '+' && line[0] != '-' {
				p.problem(Problem{Path: c.Path, Line: at, Message: "a line of a hunk begins with a blank, + or -"})
				return
			}
			h.Lines = append(h.Lines, HunkLine{line[0], line[1:]})
		}
	}
	if c != nil || begun && !ended {
		line := src.first + len(src.lines) - 1
		p.problem(Problem{Line: line, Message: "the patch has no *** End Patch: the answer was cut off", Hint: "give it again, whole"})
		return
	}
	if !begun {
		p.problem(Problem{Line: src.first, Message: "there is no patch in the answer", Hint: "a patch begins with *** Begin Patch"})
	}
}

func v4aHeader(line string) (op Op, name string, ok bool) {
	for prefix, op := range map[string]Op{"*** Add File: ": Add, "*** Update File: ": Update, "*** Delete File: ": Delete} {
		if name, ok := strings.CutPrefix(line, prefix); ok {
			return op, strings.TrimSpace(name), true
		}
	}
	return "", "", false
}

func (p *parser) v4aChange(c Change) {
	for i := range c.Hunks {
		h := &c.Hunks[i]
		// An empty line at the end of a section stands between it and the next.
		for n := len(h.Lines); n > 0 && h.Lines[n-1] == (HunkLine{' ', ""}) && i == len(c.Hunks)-1 && !h.AtEnd; n = len(h.Lines) {
			h.Lines = h.Lines[:n-1]
		}
		if len(h.Lines) == 0 {
			p.problem(Problem{Path: c.Path, Hunk: i + 1, Line: h.Line, Message: "the hunk has no lines"})
			return
		}
	}
	switch {
	case c.Op == Update && len(c.Hunks) == 0 && c.To == "":
		p.problem(Problem{Path: c.Path, Line: c.Line, Message: "the update changes nothing", Hint: "give hunks: @@, then lines that begin with a blank, - or +"})
		return
	case c.Op == Add && c.Content == nil:
		c.Content = []byte{}
	}
	p.change(c)
}
