package pages

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Shells are those that Completion knows.
var Shells = []string{"bash", "zsh", "fish"}

// Completion writes the completion script of a shell. What a flag or an operand may be comes from its enum, or from its
// tag complete: words with | between them, or a kind: file is a file, hcl a run file or the name of
// a run in one before it, dir a directory, path a path in the sandbox before it, place a file or SANDBOX:/PATH; help,
// run, backend, sandbox and project are asked from hutch itself.
func Completion(w io.Writer, app *kong.Node, shell string) error {
	var b strings.Builder
	switch shell {
	case "bash":
		bash(&b, app)
	case "zsh":
		b.WriteString("#compdef hutch\nautoload -U +X bashcompinit && bashcompinit\n")
		bash(&b, app)
	case "fish":
		fish(&b, app)
	default:
		return fmt.Errorf("no completion for %q; there is one for %s", shell, strings.Join(Shells, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// choices is the kind of values: words to choose from, or the name of a kind that the scripts know.
func choices(v *kong.Value) (words []string, kind string) {
	if v.Enum != "" {
		for _, e := range v.EnumSlice() {
			if e != "" {
				words = append(words, e)
			}
		}
		return words, ""
	}
	if kind = v.Tag.Get("complete"); strings.Contains(kind, "|") {
		return strings.Split(kind, "|"), ""
	}
	return nil, kind
}

// values is the shell expression that fills COMPREPLY.
func bashValues(words []string, kind string) string {
	switch kind {
	case "hcl":
		return `_hutch_files; _hutch_lines runs`
	case "path":
		return `compopt -o nospace 2>/dev/null; _hutch_lines paths`
	case "place":
		return "_hutch_places"
	case "file":
		return "_hutch_files"
	case "dir":
		return "_hutch_dirs"
	case "run":
		return `_hutch_words "latest $(hutch runs -q 2>/dev/null)"`
	case "backend":
		return `_hutch_words "$(hutch backend list -q 2>/dev/null)"`
	case "help":
		return `_hutch_lines help`
	case "sandbox":
		return `_hutch_words "$(hutch ps -q 2>/dev/null)"`
	case "project":
		return `_hutch_words "$(hutch project ls -q 2>/dev/null)"`
	}
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("_hutch_words %q", strings.Join(words, " "))
}

// paths is the operand of a command that is a path in the sandbox before it, or nil.
func paths(n *kong.Node) *kong.Value {
	for _, p := range n.Positional {
		if p.Tag.Get("complete") == "path" {
			return p
		}
	}
	return nil
}

func bash(b *strings.Builder, app *kong.Node) {
	b.WriteString(`# completion of hutch, generated from its grammar
_hutch_words() { COMPREPLY=($(compgen -W "$1" -- "$cur")); }
_hutch_files() { local IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); }
_hutch_dirs() { local IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$cur")); }
# What programs of a sandbox and authors of run files name is data: compgen -W would expand it, and so would the shell.
_hutch_lines() {
	local line
	while IFS= read -r line; do
		[[ $line == "$cur"* ]] && COMPREPLY+=("$(printf %q "$line")")
	done < <(hutch complete "$1" -- "${COMP_WORDS[@]:1}" 2>/dev/null)
}
# bash takes a colon for the end of a word, unless COMP_WORDBREAKS has none, and replaces what comes after it.
_hutch_places() {
	local line broken=""
	cur=${COMP_LINE:0:COMP_POINT} cur=${cur##* }
	[[ $cur == *:* ]] || _hutch_files
	[[ $cur == *:* && $COMP_WORDBREAKS == *:* ]] && broken=${cur%"${cur##*:}"}
	compopt -o nospace 2>/dev/null
	while IFS= read -r line; do
		COMPREPLY+=("$(printf %q "${line#"$broken"}")")
	done < <(hutch complete places -- "$cur" 2>/dev/null)
}
_hutch() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path="" i word ops=0
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		[ "$word" = -- ] && { COMPREPLY=($(compgen -c -f -- "$cur")); return; }
		case "$path $word" in
`)
	var names []string
	for _, n := range all(app) {
		names = append(names, fmt.Sprintf("%q", " "+strings.TrimPrefix(n.FullPath(), app.Name+" ")))
	}
	fmt.Fprintf(b,
		"\t\t%s) path=\"$path $word\" ;;\n\t\t*' '-*) ;;\n\t\t*) ops=$((ops + 1)) ;;\n\t\tesac\n\tdone\n\tcase \"$path\" "+
			"in\n", strings.Join(names, "|"))
	for _, n := range append([]*kong.Node{app}, all(app)...) {
		path := strings.TrimPrefix(n.FullPath(), app.Name)
		var flags, subs []string
		fmt.Fprintf(b, "\t%q)\n\t\tcase \"$prev\" in\n", path)
		for _, f := range ownFlags(n) {
			flags = append(flags, "--"+f.Name)
			pattern := "--" + f.Name
			if f.Short != 0 {
				pattern += fmt.Sprintf("|-%c", f.Short)
			}
			if f.IsBool() || f.IsCounter() {
				continue
			}
			if v := bashValues(choices(f.Value)); v != "" {
				fmt.Fprintf(b, "\t\t%s) %s; return ;;\n", pattern, v)
			} else {
				fmt.Fprintf(b, "\t\t%s) return ;;\n", pattern)
			}
		}
		for _, c := range visible(n.Children) {
			subs = append(subs, c.Name)
		}
		fmt.Fprintf(b, "\t\tesac\n\t\tcase \"$cur\" in\n\t\t-*) _hutch_words %q; return ;;\n\t\tesac\n",
			strings.Join(append(flags, "--help"), " "))
		switch {
		case len(subs) > 0:
			fmt.Fprintf(b, "\t\t_hutch_words %q\n", strings.Join(subs, " "))
		case len(n.Positional) > 0:
			v := bashValues(choices(n.Positional[0]))
			if later := paths(n); later != nil {
				v = fmt.Sprintf("if [ $ops -gt 0 ]; then %s; else %s; fi", bashValues(choices(later)), v)
			}
			if v != "" {
				fmt.Fprintf(b, "\t\t%s\n", v)
			}
		}
		b.WriteString("\t\t;;\n")
	}
	b.WriteString("\tesac\n}\ncomplete -F _hutch hutch\n")
}

func fish(b *strings.Builder, app *kong.Node) {
	b.WriteString("# completion of hutch, generated from its grammar\ncomplete -c hutch -f\n")
	for _, n := range append([]*kong.Node{app}, all(app)...) {
		cond := fishCondition(app, n)
		for _, c := range visible(n.Children) {
			fmt.Fprintf(b, "complete -c hutch -n %s -a %s -d %s\n", quote(cond), c.Name, quote(c.Help))
		}
		for _, f := range ownFlags(n) {
			fmt.Fprintf(b, "complete -c hutch -n %s -l %s", quote(cond), f.Name)
			if f.Short != 0 {
				fmt.Fprintf(b, " -s %c", f.Short)
			}
			if !f.IsBool() && !f.IsCounter() {
				values := fishValues(choices(f.Value))
				takes := " -x" // a value, and no name of a file, which -F takes back
				if values == fishFiles {
					takes = " -r"
				}
				b.WriteString(takes + values)
			}
			fmt.Fprintf(b, " -d %s\n", quote(f.Help))
		}
		if len(n.Positional) > 0 {
			if v := fishValues(choices(n.Positional[0])); v != "" {
				fmt.Fprintf(b, "complete -c hutch -n %s%s\n", quote(cond), v)
			}
			if _, kind := choices(n.Positional[0]); kind == "hcl" {
				fmt.Fprintf(b, "complete -c hutch -n %s -a '(hutch complete runs -- (commandline -opc) 2>/dev/null)'\n",
					quote(cond))
			}
			if later := paths(n); later != nil {
				fmt.Fprintf(b, "complete -c hutch -n %s%s\n", quote(cond), fishValues(choices(later)))
			}
		}
	}
}

// fishCondition holds while exactly the command n has been typed.
func fishCondition(app, n *kong.Node) string {
	if n == app {
		return "__fish_use_subcommand"
	}
	var seen []string
	for p := n; p != app; p = p.Parent {
		seen = append([]string{"__fish_seen_subcommand_from " + p.Name}, seen...)
	}
	cond := strings.Join(seen, "; and ")
	if subs := visible(n.Children); len(subs) > 0 {
		var names []string
		for _, c := range subs {
			names = append(names, c.Name)
		}
		cond += "; and not __fish_seen_subcommand_from " + strings.Join(names, " ")
	}
	return cond
}

// fishFiles offers names of files. fish refuses it together with -x.
const fishFiles = " -F"

func fishValues(words []string, kind string) string {
	switch kind {
	case "path":
		return " -a '(hutch complete paths -- (commandline -opc) (commandline -ct) 2>/dev/null)'"
	case "place":
		return fishFiles + " -a '(hutch complete places -- (commandline -ct) 2>/dev/null)'"
	case "hcl", "file":
		return fishFiles
	case "dir":
		return " -a '(__fish_complete_directories)'"
	case "run":
		return " -a 'latest (hutch runs -q 2>/dev/null)'"
	case "backend":
		return " -a '(hutch backend list -q 2>/dev/null)'"
	case "help":
		return " -a '(hutch complete help 2>/dev/null)'"
	case "sandbox":
		return " -a '(hutch ps -q 2>/dev/null)'"
	case "project":
		return " -a '(hutch project ls -q 2>/dev/null)'"
	}
	if len(words) == 0 {
		return ""
	}
	return " -a " + quote(strings.Join(words, " "))
}

// all are all visible nodes below n, parents first.
func all(n *kong.Node) []*kong.Node {
	var out []*kong.Node
	for _, c := range visible(n.Children) {
		out = append(append(out, c), all(c)...)
	}
	return out
}

func quote(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", `\'`) + "'"
}
