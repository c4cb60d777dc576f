package ingest

import "strings"

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
