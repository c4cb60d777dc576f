package e2e

import (
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// Status is a command of scripts, for a program that has to end with a code: status CODE PROGRAM [ARG...]
func Status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if e, ok := err.(interface{ ExitCode() int }); ok {
		got = e.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("it ended with %d, want %d\nstdout:\n%s\nstderr:\n%s", got, want, ts.ReadFile("stdout"),
			ts.ReadFile("stderr"))
	}
}
