package language

import (
	"path"
	"strings"
)

// shells are the interpreters that a script may ask for by itself.
var shells = []string{"sh", "bash", "dash", "ksh", "zsh", "ash"}

// shell runs a script with the shell that its first line or its extension names, because a bash script that is run by
// sh fails in ways that surprise its author.
func shell(p *Program, c *Command) {
	if path.Ext(p.Entrypoint) == ".bash" {
		c.Argv[0] = "bash"
	}
	if p.Read == nil {
		return
	}
	head, ok := p.Read(p.Entrypoint)
	if !ok {
		return
	}
	line, _, _ := strings.Cut(string(head), "\n")
	line, found := strings.CutPrefix(line, "#!")
	if !found {
		return
	}
	words := strings.Fields(line)
	if len(words) > 0 && path.Base(words[0]) == "env" {
		words = words[1:]
	}
	if len(words) > 0 && words[0] == "-S" {
		words = words[1:]
	}
	if len(words) == 0 {
		return
	}
	for _, s := range shells {
		if path.Base(words[0]) == s {
			argv := append([]string{s}, words[1:]...)
			c.Argv = append(argv, c.Argv[1:]...)
			return
		}
	}
}
