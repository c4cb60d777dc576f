package loops

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/test/e2e"
)

// The program that works after the fewest attempts is taken.
func TestGenerateBest(t *testing.T) {
	w := newWorld(t, os.Getuid())
	v := serve(t, "", program("exit 3")+program("echo two")+program("echo one"))
	w.write(t, "g.hcl", local(v)+generateBlock)
	out, said := w.hutch(t, 0, "generate", "g.hcl", "-n", "2", "-j", "1", "-d", "out")
	if got := w.read(t, "out/main.sh"); got != "echo one\n" {
		t.Errorf("the program is %q\n%s", got, said)
	}
	for _, line := range []string{`(?m)^ +\S+ +worked +2 .*1 file, 9 bytes$`, `(?m)^\* +\S+ +worked +1 .*1 file, 9 bytes$`} {
		if !regexp.MustCompile(line).MatchString(out) {
			t.Errorf("no %s in %s", line, out)
		}
	}
}

// A directory into which the program cannot be copied is reported before the model is asked, or with where the program
// is, and the exit code is not that of success.
func TestGenerateCopies(t *testing.T) {
	for name, uid := range e2e.Users() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, uid)
			v := serve(t, "", program("echo one")+program("echo two"))
			w.write(t, "g.hcl", local(v)+generateBlock, "out/main.sh/in-the-way", "")
			w.hutch(t, 125, "generate", "g.hcl", "-d", "g.hcl/out")
			if uid != 0 {
				_, said := w.hutch(t, 125, "generate", "g.hcl", "-d", "/usr/hutch-is/not-here")
				if !strings.Contains(said, "cannot be made: /usr: permission denied") {
					t.Errorf("a directory that cannot be made: %s", said)
				}
			}
			if v.Used() != 0 {
				t.Errorf("the model was asked %d times", v.Used())
			}
			_, said := w.hutch(t, 125, "generate", "g.hcl", "-d", "out", "--force")
			if !strings.Contains(said, "main.sh is a directory") || !strings.Contains(said, "the program is in "+w.home()) {
				t.Errorf("what is in the way is not reported: %s", said)
			}
			w.hutch(t, 0, "generate", "g.hcl", "-d", "new/out")
			if got := w.read(t, "new/out/main.sh"); got != "echo two\n" {
				t.Errorf("the program is %q", got)
			}
			if _, err := os.Stat(w.dir + "/new/out/g.hcl"); err == nil {
				t.Error("more than the program was copied")
			}
		})
	}
}
