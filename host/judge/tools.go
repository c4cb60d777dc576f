package judge

import (
	_ "embed" // tools.txt
	"strings"
	"sync"
)

// Tool is one tool of tools.txt, which says what that means.
type Tool struct {
	Name   string
	Source string   // where the tool documents it
	Runs   []string // files that are refused
	Marks  []string // files that are marked
}

//go:embed tools.txt
var toolsText string

// ToolList has those of tools.txt.
var ToolList = sync.OnceValue(func() (all []Tool) {
	for line := range strings.Lines(toolsText) {
		fields := strings.Fields(line)
		name, source, isTool := strings.Cut(strings.TrimSpace(line), " <")
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case isTool:
			all = append(all, Tool{Name: name, Source: strings.TrimSuffix(source, ">")})
		case fields[0] == "runs":
			all[len(all)-1].Runs = append(all[len(all)-1].Runs, fields[1:]...)
		default:
			all[len(all)-1].Marks = append(all[len(all)-1].Marks, fields[1:]...)
		}
	}
	return all
})

// pattern is one of the table, with its names folded.
type pattern struct {
	tool    string
	refused bool
	names   []string // but for the last one
	before  string   // the last name: what stands before its asterisk, and behind it
	behind  string
	star    bool
	dir     bool // what lies below it belongs to it
}

func (p *pattern) matches(last string) bool {
	if !p.star {
		return last == p.before
	}
	return len(last) >= len(p.before)+len(p.behind) && strings.HasPrefix(last, p.before) &&
		strings.HasSuffix(last, p.behind)
}

// index has the patterns by their first name, and those whose first name has an asterisk apart.
var index = sync.OnceValues(func() (map[string][]*pattern, []*pattern) {
	byName := map[string][]*pattern{}
	var stars []*pattern
	add := func(tool string, list []string, refused bool) {
		for _, s := range list {
			p := &pattern{tool: tool, refused: refused}
			s, p.dir = strings.CutSuffix(fold(s), "/")
			p.names = strings.Split(s, "/")
			last := len(p.names) - 1
			p.before, p.behind, p.star = strings.Cut(p.names[last], "*")
			p.names = p.names[:last]
			switch {
			case last > 0:
				byName[p.names[0]] = append(byName[p.names[0]], p)
			case p.star:
				stars = append(stars, p)
			default:
				byName[p.before] = append(byName[p.before], p)
			}
		}
	}
	for _, t := range ToolList() {
		add(t.Name, t.Runs, true)
		add(t.Name, t.Marks, false)
	}
	return byName, stars
})

// Obeyed names the tool that runs or obeys what stands at the path, or "" for none, and says whether that is refused
// rather than marked.
func Obeyed(p string) (tool string, refused bool) {
	byName, stars := index()
	names := strings.Split(p, "/")
	for i := range names {
		names[i] = fold(names[i])
	}
	for i, name := range names {
		for _, list := range [][]*pattern{byName[name], stars} {
			for _, q := range list {
				if end := i + len(q.names); end < len(names) && (end == len(names)-1 || q.dir) && !refused &&
					sameNames(names[i:end], q.names) && q.matches(names[end]) {
					tool, refused = q.tool, q.refused
				}
			}
		}
	}
	return tool, refused
}

func sameNames(a, b []string) bool {
	for i := range b {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
