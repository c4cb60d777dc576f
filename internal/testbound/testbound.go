// Package testbound bounds the time that the tests of a package take all together. go test has such a bound too, one for
// all packages and therefore long: a single wait for something that does not come would use up the time of everything.
package testbound

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Run is m.Run that ends the process after d with what every goroutine waits for. It should be several times what the
// tests take on a busy machine. Benchmarks, fuzzing and repeated runs have no bound. The directories that tests make are as most
// users have them, and not open to a group as with a umask of 002, in which hutch refuses to work.
func Run(m *testing.M, d time.Duration) int {
	syscall.Umask(0o022)
	flag.Parse()
	if bounded(func(name string) string { return flag.Lookup(name).Value.String() }) {
		defer time.AfterFunc(d, func() {
			stacks := make([]byte, 4<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			fmt.Fprintf(os.Stderr, "the tests of this package are not done after %s; one of these goroutines waits for what does not come:\n\n%s\n", d, stacks)
			os.Exit(2)
		}).Stop()
	}
	return m.Run()
}

// bounded tells an ordinary run by the values of go test's flags.
func bounded(value func(name string) string) bool {
	return value("test.fuzz") == "" && value("test.bench") == "" && value("test.count") == "1" && !strings.HasPrefix(value("test.fuzzworker"), "t")
}
