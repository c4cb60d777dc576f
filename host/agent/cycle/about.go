package cycle

import (
	"encoding/json"
	"fmt"
	"strings"
)

// about says in a few words what a call is about, for a person who watches. It is the model's text.
func about(args string) string {
	var a struct {
		Path    string   `json:"path"`
		Command string   `json:"command"`
		Argv    []string `json:"argv"`
		Pattern string   `json:"pattern"`
		Patch   string   `json:"patch"`
		Job     string   `json:"job"`
		Hard    bool     `json:"hard"`
	}
	if json.Unmarshal([]byte(args), &a) != nil {
		return ""
	}
	text := a.Path
	switch {
	case a.Command != "":
		text = a.Command
	case len(a.Argv) > 0:
		text = strings.Join(a.Argv, " ")
	case a.Pattern != "":
		text = a.Pattern
	case a.Patch != "":
		text = fmt.Sprintf("%d lines", strings.Count(a.Patch, "\n")+1)
	case a.Job != "":
		text = a.Job
	case a.Hard:
		text = "hard"
	}
	const most = 100
	if first, _, more := strings.Cut(text, "\n"); more {
		text = first + " …"
	}
	return clip(text, most)
}
