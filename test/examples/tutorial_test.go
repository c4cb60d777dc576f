package examples

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/test/e2e"
)

var update = flag.Bool("update", false, "write the real output into the console blocks of the pages")

// port is the one that the tutorial serves files on; the test takes a free one.
const port = "8642"

// TestTutorial runs every command in the console blocks of the README, the tutorial and the tasks, each page in one shell, and
// compares what is printed with the page.
func TestTutorial(t *testing.T) {
	for _, tool := range []string{"bwrap", "python3", "bash", "git"} {
		e2e.Require(t, tool)
	}
	for _, page := range []string{"README.md", "docs/tutorial.md", "docs/tasks.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			source, err := os.ReadFile("../../" + page)
			if err != nil {
				t.Fatal(err)
			}
			blocks := regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatchIndex(string(source), -1)
			var commands []string
			var shown []string // the blocks of the page
			for _, at := range blocks {
				shown = append(shown, string(source[at[2]:at[3]]))
				for line := range strings.Lines(shown[len(shown)-1]) {
					if command, ok := strings.CutPrefix(line, "$ "); ok {
						commands = append(commands, command)
					}
				}
			}
			if len(commands) < 5 {
				t.Fatalf("the page has only %d commands", len(commands))
			}
			printed := walk(t, commands)
			n := 0
			for i, block := range shown {
				var real strings.Builder
				for range strings.Count("\n"+block, "\n$ ") {
					real.WriteString("$ " + commands[n] + printed[n])
					n++
				}
				if d := cmp.Diff(stable(block), stable(real.String())); d != "" && !*update {
					t.Errorf("block %d (-page +hutch), or go test ./test/examples -run TestTutorial -update\n%s", i+1, d)
				}
				shown[i] = real.String()
			}
			if *update {
				text := string(source)
				for i := len(blocks) - 1; i >= 0; i-- {
					text = text[:blocks[i][2]] + shown[i] + text[blocks[i][3]:]
				}
				if err := os.WriteFile("../../"+page, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// walk runs commands one after the other in one shell, in a home directory with a copy of examples/, and returns what
// each printed, with the home directory shown as /home/ada.
func walk(t *testing.T, commands []string) []string {
	t.Helper()
	home, err := os.MkdirTemp(e2e.Dir, "ada-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(home, "examples"), os.DirFS("../../examples")); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, number, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	const mark = "=== next command"
	var script strings.Builder
	for _, command := range commands {
		script.WriteString("echo '" + mark + "'\n" + command)
		if strings.HasSuffix(command, "&\n") { // a server: the next command needs it
			fmt.Fprintf(&script, "until (: < /dev/tcp/127.0.0.1/%s) 2>/dev/null; do sleep 0.05; done\n", port)
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "exec 2>&1\n"+strings.ReplaceAll(script.String(), port, number)+"wait\n")
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "PATH=" + filepath.Dir(e2e.Hutch()) + ":" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
	out, err := cmd.Output()
	if err != nil {
		t.Logf("the last command: %v", err)
	}
	text := strings.ReplaceAll(strings.ReplaceAll(string(out), home, "/home/ada"), number, port)
	printed := strings.Split(text, mark+"\n")[1:]
	if len(printed) != len(commands) {
		t.Fatalf("ran %d of %d commands:\n%s", len(printed), len(commands), text)
	}
	return printed
}

var varying = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b\d{6}-\d{6}-[a-z0-9]{6}\b`), "ID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "HASH"},
	{regexp.MustCompile(`\b[0-9a-f]{12}\b`), "COMMIT"},
	{regexp.MustCompile(`\d+ B sent`), "SIZE sent"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+Z`), "DATE"},
	{regexp.MustCompile(`until \d+ [A-Z][a-z]+`), "until DAY"},
	{regexp.MustCompile(`(?m)^  evidence: .*$`), "  evidence"}, // by the cgroup that there is
	{regexp.MustCompile(`(?m)^  limit: .*$`), "  limit"},
	{regexp.MustCompile(`\b(now|\d+ seconds? ago|1 minute ago)\b`), "AGO"},
	{regexp.MustCompile(`\b[\d.]+m?s\b`), "TIME"},
	{regexp.MustCompile(`peak memory [\d.]+ [KM]iB`), "peak memory"},
	{regexp.MustCompile(`Python \d[\d.]+`), "Python"},
	{regexp.MustCompile(`\[\d+\] \d+`), "JOB"},
	{regexp.MustCompile(` +`), " "},
}

// stable replaces what differs from one run, or one machine, to the next.
func stable(s string) string {
	for _, v := range varying {
		s = v.what.ReplaceAllString(s, v.with)
	}
	return s
}
