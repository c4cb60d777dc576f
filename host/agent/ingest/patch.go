package ingest

import (
	"strings"
)

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
	flush := func() {
		if c != nil {
			p.v4aChange(*c)
		}
		c = nil
	}
	hunk := func(at int, fresh bool) *Hunk { // the last one, or a new one
		if n := len(c.Hunks); n == 0 || fresh && len(c.Hunks[n-1].Lines) > 0 {
			c.Hunks = append(c.Hunks, Hunk{Line: at})
		}
		return &c.Hunks[len(c.Hunks)-1]
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
				p.fail(at, "this line belongs to no file",
					"begin with *** Update File: PATH, *** Add File: PATH or *** Delete File: PATH")
				return
			}
		case strings.HasPrefix(line, "*** Move to: "):
			c.To = strings.TrimSpace(strings.TrimPrefix(line, "*** Move to: "))
			if c.Op != Update {
				p.failIn(c.Path, at, "only a file that is updated can be moved", "")
			}
		case strings.HasPrefix(line, "*** End of File"):
			if len(c.Hunks) > 0 {
				hunk(at, false).AtEnd = true
			}
		case c.Op == Add:
			text, ok := strings.CutPrefix(line, "+")
			if !ok && strings.TrimSpace(line) != "" {
				p.failIn(c.Path, at, "all lines of a new file begin with +", "")
				return
			}
			if ok {
				c.Content = append(append(c.Content, text...), '\n')
			}
		case c.Op == Delete:
			if strings.TrimSpace(line) != "" {
				p.failIn(c.Path, at, "nothing follows on *** Delete File", "")
				return
			}
		case strings.HasPrefix(line, "@@"):
			anchor := strings.TrimSpace(strings.TrimPrefix(line, "@@"))
			anchor = strings.TrimSpace(strings.TrimSuffix(anchor, "@@"))
			h := hunk(at, true)
			if anchor != "" && !strings.HasPrefix(anchor, "-") { // @@ -1,2 +1,2 @@ says nothing here
				h.Anchors = append(h.Anchors, anchor)
			}
		default:
			h := hunk(at, false)
			if line == "" {
				line = " "
			}
			if line[0] != ' ' && line[0] != '+' && line[0] != '-' {
				p.failIn(c.Path, at, "a line of a hunk begins with a blank, + or -", "")
				return
			}
			h.Lines = append(h.Lines, HunkLine{line[0], line[1:]})
		}
	}
	if c != nil || begun && !ended {
		line := src.first + len(src.lines) - 1
		p.fail(line, "the patch has no *** End Patch: the answer was cut off", "give it again, whole")
		return
	}
	if !begun {
		p.fail(src.first, "there is no patch in the answer", "a patch begins with *** Begin Patch")
	}
}

var v4aOps = map[string]Op{"*** Add File: ": Add, "*** Update File: ": Update, "*** Delete File: ": Delete}

func v4aHeader(line string) (op Op, name string, ok bool) {
	for prefix, op := range v4aOps {
		if name, ok := strings.CutPrefix(line, prefix); ok {
			return op, strings.TrimSpace(name), true
		}
	}
	return "", "", false
}

// v4aBegins recognises the first line of a patch.
func v4aBegins(line string) bool {
	_, _, header := v4aHeader(line)
	return header || strings.HasPrefix(line, "*** Begin Patch")
}

func (p *parser) v4aChange(c Change) {
	for i := range c.Hunks {
		h := &c.Hunks[i]
		// An empty line at the end of a section stands between it and the next.
		n := len(h.Lines)
		for n > 0 && h.Lines[n-1] == (HunkLine{' ', ""}) && i == len(c.Hunks)-1 && !h.AtEnd {
			n--
		}
		h.Lines = h.Lines[:n]
		if len(h.Lines) == 0 {
			p.problem(Problem{Path: c.Path, Hunk: i + 1, Line: h.Line, Message: "the hunk has no lines"})
			return
		}
	}
	switch {
	case c.Op == Update && len(c.Hunks) == 0 && c.To == "":
		p.failIn(c.Path, c.Line, "the update changes nothing", "give hunks: @@, then lines that begin with a blank, - or +")
		return
	case c.Op == Add && c.Content == nil:
		c.Content = []byte{}
	}
	p.change(c)
}

// searchMark is the length of the mark in a line like <<<<<<< SEARCH; 0 for any other line.
func searchMark(line string) int {
	line = strings.TrimRight(line, " \t")
	n := len(line) - len(strings.TrimLeft(line, "<"))
	if n < 5 || n > 9 || line[n:] != " SEARCH" && line[n:] != " ORIGINAL" {
		return 0
	}
	return n
}

// replaceMark recognises the end of a block that began with n marks.
func replaceMark(line string, n int) bool {
	line = strings.TrimRight(line, " \t")
	rest := strings.TrimLeft(line, ">")
	return len(line)-len(rest) == n && (rest == " REPLACE" || rest == " UPDATED")
}

// searchForm is what a block looks like, for messages.
const searchForm = "a block is <<<<<<< SEARCH, old lines, =======, new lines, >>>>>>> REPLACE"

// searchReplace reads blocks like these, in fences or without, each with its path in a line before it; one without a
// path is for the file of the block before.
//
//	src/main.py
//	<<<<<<< SEARCH
//	old lines
//	=======
//	new lines
//	>>>>>>> REPLACE
func (p *parser) searchReplace(src source) {
	path, seen := "", false
	var order []string
	byPath := map[string]*Change{}
	for i := 0; i < len(src.lines); i++ {
		line := src.lines[i]
		n := searchMark(line)
		if n == 0 {
			if f, ok := openFence(line); ok {
				f.identify("")
				if f.name != "" {
					path = f.name
				}
			} else if name := namedBy(line); name != "" {
				path = name
			}
			continue
		}
		seen = true
		first := src.first + i
		middle, end := -1, -1
		for j := i + 1; j < len(src.lines) && end < 0; j++ {
			switch l := strings.TrimRight(src.lines[j], " \t"); {
			case middle < 0 && len(l) == n && strings.Trim(l, "=") == "":
				middle = j
			case middle >= 0 && replaceMark(l, n):
				end = j
			case searchMark(l) == n:
				j = len(src.lines) // the next one begins
			}
		}
		switch {
		case middle < 0:
			p.failIn(path, first, "the block has no line "+strings.Repeat("=", n)+" between the old and the new text",
				searchForm)
			return
		case end < 0:
			p.failIn(path, first, "the block has no line "+strings.Repeat(">", n)+" REPLACE at its end: the answer was cut off",
				searchForm)
			return
		case path == "":
			p.fail(first, "nothing says which file the block is for", "write the path in a line of its own before the block")
			return
		}
		h := Hunk{Line: first, anywhere: true}
		for _, l := range src.lines[i+1 : middle] {
			h.Lines = append(h.Lines, HunkLine{'-', l})
		}
		for _, l := range src.lines[middle+1 : end] {
			h.Lines = append(h.Lines, HunkLine{'+', l})
		}
		if byPath[path] == nil {
			byPath[path] = &Change{Op: Update, Path: path, Line: first}
			order = append(order, path)
		}
		byPath[path].Hunks = append(byPath[path].Hunks, h)
		i = end
	}
	if !seen {
		p.fail(src.first, "there is no block in the answer",
			searchForm)
	}
	for _, name := range order {
		c := *byPath[name]
		if h := c.Hunks[0]; len(h.old()) == 0 && len(c.Hunks) == 1 {
			c.Op, c.Hunks, c.Content = Add, nil, []byte{}
			for _, l := range h.Lines {
				c.Content = append(append(c.Content, l.Text...), '\n')
			}
		}
		p.change(c)
	}
}
