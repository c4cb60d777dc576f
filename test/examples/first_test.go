package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestFirstMinute is what people type before they have read anything: no configuration, no --backend.
func TestFirstMinute(t *testing.T) {
	e2e.Require(t, "bwrap")
	e2e.Require(t, "python3")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"s.py": "import sys\nprint(*sys.argv[1:])\n", "tool": "#!/bin/sh\necho tool \"$@\"\n", "none": "echo none\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	home := t.TempDir()
	for i, tc := range []struct {
		args, stdin, out, err string
		code                  int
	}{
		{args: "run -- echo hello", out: "hello\n", err: "the first of bwrap"},
		{args: "run -- echo hello", out: "hello\n"}, // it is said once
		{args: "run s.py a --rm b", out: "a --rm b\n"},
		{args: "run tool -v", out: "tool -v\n"},
		{args: "run - x", stdin: "#!/bin/sh\necho on stdin $1\n", out: "on stdin x\n"},
		{args: "run --language python - x", stdin: "print(6 * 7)\n", out: "42\n"},
		{args: "run -", stdin: "print(6 * 7)\n", err: "hutch run --language python -", code: 125},
		{args: "run --language cobol -", stdin: "print(6 * 7)\n", err: "the languages are python", code: 125},
		{args: "run gone.py", err: `there is no script "gone.py"`, code: 125},
		{args: "run none", err: "none:1", code: 125}, // a run file with a mistake
		{args: "create --name box", out: "box\n"},
		{args: "exec box sh -c true"},
		{args: "exec box echo -n a -- b", out: "a -- b"},
		{args: "rm box", out: "box\n"},
	} {
		cmd := exec.CommandContext(t.Context(), e2e.Hutch(), strings.Fields(tc.args)...)
		var out, words strings.Builder
		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(tc.stdin), &out, &words
		cmd.Env = []string{"HUTCH_HOME=" + home, "PATH=/usr/bin:/bin", "HUTCH_BACKEND_PATH="}
		_ = cmd.Run() // the code says it
		if cmd.ProcessState.ExitCode() != tc.code || out.String() != tc.out || tc.err == "" != (words.Len() == 0) || !strings.Contains(words.String(), tc.err) {
			t.Errorf("%d: hutch %s ended with %d, printed %q and said\n%s", i, tc.args, cmd.ProcessState.ExitCode(), &out, &words)
		}
	}
}
