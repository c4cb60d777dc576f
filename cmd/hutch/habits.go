package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/termsafe"
)

// habit is what people type who come from another tool.
type habit struct {
	from  string // the tools
	typed string // the command line without hutch
	does  string // what hutch does, where it takes that

	// Where it does not, answer says what to type instead, in the error about the word: a flag or an operand of the
	// commands in on, or a command when that is empty.
	answer string
	on     string // separated by spaces
	word   string // a regular expression for all of it
}

// image is a reference to an image that is nothing else: it has a tag, or a registry with a dot in its name.
const image = `([a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?/)?[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9_][A-Za-z0-9._-]*(@sha256:[0-9a-f]+)?|[a-z0-9-]+(\.[a-z0-9-]+)+/[a-z0-9._/-]+`

var isImage = lazy(`^(` + image + `)$`)

// habits are rendered into docs/reference/habits.md, and tested row by row.
var habits = []habit{
	{from: "docker, podman", typed: "run --rm -- true",
		does: "runs it; a sandbox is always removed after its run, unless `--keep` is given"},
	{from: "docker, podman", typed: "run debian:12 cat /etc/os-release",
		does: "runs the command on the backend podman, in this image"},
	{from: "docker, podman", typed: "run -v .:/src -- ls", on: "run create", word: "-v|--volume",
		answer: "--workspace DIR shows a project at /workspace and keeps writes for review; --mount DIR:/src shows " +
			"another directory read-only, --mount DIR:/src:writable lets writes land in it"},
	{from: "docker, podman", typed: "run -d -- sleep 60", on: "run", word: "-d|--detach",
		answer: "hutch create --name NAME makes a sandbox that stays, and hutch exec NAME COMMAND runs in it; hutch push " +
			"--detach leaves an agent at work"},
	{from: "docker, podman", typed: "run -u 1000 -- id", on: "run create", word: "-u|--user",
		answer: `uid = 1000 in a bwrap block of a run file, user = "1000" in a podman block; hutch exec has -u`},
	{from: "docker, podman", typed: "run --gpus all -- nvidia-smi", on: "run create", word: "--gpus",
		answer: "no backend gives programs a GPU: leave it out"},
	{from: "docker, podman", typed: "run --entrypoint sh debian:12", on: "run create", word: "--entrypoint",
		answer: "hutch run IMAGE PROGRAM ARG... runs this program; the entry point of an image is never run"},
	{from: "docker, podman", typed: "ps -a", does: "lists all sandboxes, as without the flag"},
	{from: "docker, podman", typed: "ps --format json", on: "ps runs inspect show version doctor", word: "--format",
		answer: "-o json prints JSON, for jq"},
	{from: "docker, podman", typed: "exec box echo hi",
		does: "runs the command; `--` is needed only before a command that begins with a dash"},
	{from: "docker, podman", typed: "logs box", does: "prints what the last command in the sandbox printed"},
	{from: "docker, podman", typed: "kill box", word: "kill",
		answer: "hutch stop -f SANDBOX kills what runs in a sandbox and keeps its files; hutch rm -f SANDBOX removes it"},
	{from: "docker, podman", typed: "images", word: "images",
		answer: "podman images lists the images of the backend podman; other backends have none"},
	{from: "docker, podman", typed: "pull debian:12", on: "pull", word: image,
		answer: "podman pull IMAGE fetches an image; hutch run IMAGE COMMAND fetches it when it is missing"},
	{from: "docker, podman", typed: "build .", word: "build",
		answer: "podman build -t NAME . builds an image; hutch run localhost/NAME COMMAND runs it"},
	{from: "terraform", typed: "apply one.hcl", on: "apply", word: `.*\.hcl`,
		answer: "hutch run FILE runs a run file; hutch apply SANDBOX brings what changed in a sandbox to its project"},
	{from: "terraform", typed: "apply -auto-approve box", does: "applies, as without the flag: it asks nothing"},
	{from: "docker, podman", typed: "system prune", word: "system|prune|clean",
		answer: "hutch gc removes old runs and what dead processes left; hutch rm SANDBOX removes a sandbox"},
	{from: "docker, podman", typed: "restart box", word: "restart",
		answer: "hutch stop SANDBOX, then hutch start SANDBOX; hutch reset SANDBOX makes it again and keeps its files"},
	{from: "docker, podman", typed: "commit box", word: "commit",
		answer: "hutch apply SANDBOX brings what changed to its project; hutch fork SANDBOX copies a sandbox"},
	{from: "docker, podman", typed: "info", word: "info|env|config",
		answer: "hutch doctor checks this machine, hutch version lists the backends"},
	{from: "docker, podman", typed: "stats", word: "list|ls|stats|status|top|watch",
		answer: "hutch ps lists sandboxes, hutch runs lists runs; --watch keeps the list up to date"},
	{from: "docker compose", typed: "up", word: "up|new",
		answer: "hutch create --name NAME makes a sandbox that stays; hutch run FILE runs a run file"},
	{from: "ssh, vagrant", typed: "ssh box", word: "attach|bash|enter|sh|shell|ssh",
		answer: "hutch exec -it SANDBOX sh opens a shell in a sandbox"},
	{from: "terraform", typed: "destroy", word: "delete|destroy|down|remove",
		answer: "hutch rm SANDBOX removes a sandbox; hutch ps lists them"},
	{from: "docker, podman", typed: "rm --all", on: "rm stop start", word: "--all|-a",
		answer: "hutch ps -q lists the ids of all sandboxes, for xargs hutch rm"},
	{from: "any", typed: "fs ls box", on: "fs", word: "ls|dir",
		answer: "hutch fs list SANDBOX lists the files of its workspace"},
	{from: "any", typed: "fs cat box f", on: "fs", word: "cat",
		answer: "hutch fs read SANDBOX FILE prints a file of its workspace"},
	{from: "terraform", typed: "show last", on: "show logs replay", word: "last",
		answer: "latest names the last run"},
	{from: "terraform, make", typed: "-C sub run sub.hcl",
		does: "changes to the directory first; `-chdir=DIR` is the same"},
	{from: "make", typed: "run --dry-run one.hcl", does: "prints the plan and runs nothing, as `hutch plan` does"},
	{from: "make", typed: "test", word: "test",
		answer: "hutch run FILE runs the tests that a run file describes; hutch backend test NAME tests a backend"},
	{from: "python, node", typed: "run s.py a b",
		does: "runs the script with its arguments; `--language` says how, where neither name nor `#!` does"},
	{from: "python, node", typed: "run --language python -",
		does: "runs the script on stdin; of `hutch run - < s.py` the name of the file says the language"},
	{from: "deno", typed: "run --allow-net s.py", on: "run create exec", word: "--allow|--allow-net|--net",
		answer: "--allow-host NAME lets it reach a name, --network full every name"},
	{from: "docker compose", typed: "run .",
		does: "runs the run file of the directory, if it has one only; otherwise the error names them"},
	{from: "gh, kubectl", typed: "ps --json", does: "prints JSON, as `-o json` does"},
	{from: "any", typed: "run --no-color one.hcl", does: "prints without colors, as with `NO_COLOR=1`"},
	{from: "any", typed: "run --verbose one.hcl", does: "shows the whole result, as `hutch show` does; `exec` has it, too"},
	{from: "any", typed: "create --verbose", on: "create push pull", word: "--verbose|-v+",
		answer: "hutch run --verbose and hutch exec --verbose show the whole result, hutch show --tree latest each step"},
	{from: "any", typed: "check one.hcl", word: "check|lint",
		answer: "hutch validate FILE checks a run file; hutch doctor checks this machine"},
	{from: "any", typed: "history", word: "events|history",
		answer: "hutch runs lists runs; hutch show --events RUN lists what happened in one"},
	{from: "any", typed: "undo box", word: "undo",
		answer: "hutch apply --undo SANDBOX takes the last apply back"},
	{from: "any", typed: "help run", does: "prints the help of a command, as `hutch run --help` does"},
	{from: "any", typed: "-V", does: "prints the version"},
}

// habitual is the answer to a word that command does not know; command is "" for the word of a command, and hutch for a
// flag before it.
func habitual(command, word string) string {
	for _, h := range habits {
		if h.answer == "" || (h.on == "") != (command == "") ||
			h.on != "" && !slices.Contains(strings.Fields(h.on), command) && (command != "hutch" || h.from != "any") {
			continue
		}
		if regexp.MustCompile(`^(?:` + h.word + `)$`).MatchString(word) {
			return h.answer
		}
	}
	return ""
}

// operandHint adds to an error of a command what a habit says about one of its operands.
func operandHint(args []string, err error) error {
	if len(args) == 0 {
		return err
	}
	for _, a := range args[1:] {
		if strings.HasPrefix(a, "-") {
			continue
		}
		if answer := habitual(args[0], a); answer != "" {
			return hint(err, "%s", answer)
		}
	}
	return err
}

// writeHabits writes the page of the habits.
func writeHabits(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Coming from docker, podman, terraform and make\n\nWhat these tools' users type, and what hutch " +
		"does. Generated from `cmd/hutch/habits.go`.\n\n| you type | from | hutch |\n| --- | --- | --- |\n")
	for _, h := range habits {
		says := h.does
		if h.answer != "" {
			says = "says: " + h.answer
		}
		fmt.Fprintf(&b, "| `hutch %s` | %s | %s |\n", h.typed, h.from, strings.ReplaceAll(says, "|", `\|`))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// unknownWord is what is said about a word that is not known: the answer of a habit, or a known word that looks like
// it. The known ones lack the prefix of a flag.
func unknownWord(command, word, prefix string, known []string) []string {
	if answer := habitual(command, word); answer != "" {
		return []string{answer}
	}
	if guess := diag.Suggest(strings.TrimLeft(word, "-"), known); guess != "" {
		return []string{"did you mean " + termsafe.Line(prefix+guess) + "?"}
	}
	return nil
}
