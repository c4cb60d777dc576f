package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/plugins/e2b/scripts"
	"github.com/hutch-run/hutch/sdk"
)

// job is one command as a shell script, in a file that only its user can read: the daemon logs its own requests.
type job struct {
	dir  string // where the file goes
	path string // of the file, once it is sent
	text string
	sign string // begins the first bytes on stderr, or on the terminal
	mark string // known by it are all processes of the command
	user string
}

// What a command can take, of Linux: in one argument or variable, and in all of them together.
const (
	maxArgument  = 128<<10 - 1
	maxArguments = 2<<20 - 64<<10
)

// tooLong reports whether the kernel would refuse the command for its length.
func tooLong(c *sdk.Command) bool {
	total := 0
	for _, a := range c.Argv {
		if total += len(a) + 9; len(a) > maxArgument {
			return true
		}
	}
	for name, value := range c.Env {
		n := len(name) + len(value) + 1
		if total += n + 9; n > maxArgument {
			return true
		}
	}
	return total > maxArguments
}

// newJob writes the file of a command.
func newJob(c *sdk.Command, user string) (*job, error) {
	mark, err := rand.Int(rand.Reader, big.NewInt(1<<31-1<<20))
	if err != nil {
		return nil, err
	}
	j := &job{user: user, sign: "hutch." + rand.Text() + ".", mark: fmt.Sprint(mark.Int64() + 1<<20)}
	j.dir = basePath + "/jobs/" + user
	var b strings.Builder
	set := func(name, value string) { fmt.Fprintf(&b, "%s=%s\n", name, scripts.Literal(value)) }
	set("sign", j.sign)
	set("mark", j.mark)
	set("watch", scripts.Watch)
	set("dir", cmp.Or(c.Dir, workspacePath))
	set("program", c.Argv[0])
	set("terminal", yesNo(c.TTY != nil))
	if search, ok := c.Env["PATH"]; ok {
		set("search", search)
	} else {
		b.WriteString("search=$PATH\n")
	}
	// In braces: a shell runs nothing of a file that breaks off before they close.
	b.WriteString("{\n" + scripts.Job)
	b.WriteString("exec $own env -i --")
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		b.WriteString(" " + scripts.Literal(name+"="+c.Env[name]))
	}
	for _, word := range []string{`"PATH=$PATH"`, `"HOME=$HOME"`, "LANG=C.UTF-8", "TERM=xterm"} {
		name, _, _ := strings.Cut(strings.Trim(word, `"`), "=")
		if _, ok := c.Env[name]; !ok && (name != "TERM" || c.TTY != nil) {
			b.WriteString(" " + word)
		}
	}
	if strings.Contains(c.Argv[0], "=") { // env would take it for a variable
		b.WriteString(` sh -c 'exec "$0" "$@"'`)
	}
	for _, a := range c.Argv {
		b.WriteString(" " + scripts.Literal(a))
	}
	b.WriteString("\n}\n")
	j.text = b.String()
	return j, nil
}

// jobsOf makes the directory for the commands of a user, once.
func (s *sandbox) jobsOf(ctx context.Context, user string) error {
	if user == s.user() {
		return nil // setup.sh made it
	}
	if _, done := s.users.Load(user); done {
		return nil
	}
	if !isUser(user) {
		return sdk.Errorf(sdk.ReasonConfig, "invalid user name %q", user)
	}
	const script = `id -u "$2" >/dev/null 2>&1 || exit 48
dir=$1/jobs/$2
mkdir -p -m 700 "$dir" && { chown "$2" "$dir" || [ "$(stat -c %u "$dir")" = "$(stat -c %u "$1/jobs")" ]; }`
	err := s.sh(ctx, "make a place for commands of "+user, rootUser, script, nil, basePath, user)
	var e *scriptError
	switch {
	case errors.As(err, &e) && e.code == scripts.NoUser:
		return sdk.Errorf(sdk.ReasonConfig, "the template has no user %s", user)
	case err == nil:
		s.users.Store(user, true)
	}
	return err
}
