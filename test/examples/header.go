package examples

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// header is what an example says about itself.
type header struct {
	needs    []string
	backends []string // of a script
	before   string   // where podman is needed
	command  string   // of hutch, by which a run file is executed
	env      []string // what prepare adds to the environment
	expects  []expect
}

// expect is one line of it.
type expect struct {
	subject string // hutch, or the name of a run
	verb    string // exit, cause, stdout, stderr, output, no output, change
	value   string
}

var (
	backends   = regexp.MustCompile(`^# backends: (.+)$`)
	command    = regexp.MustCompile(`^# command: (run|generate)$`)
	beforeLine = regexp.MustCompile(`^# before podman: (\S+)$`)
	needsLine  = regexp.MustCompile(`^# needs: (.+)$`)
	expectLine = regexp.MustCompile(`^# expect (.+?): (exit|cause|stdout|stderr|output|no output|change) (.+)$`)
)

func readHeader(path string) (*header, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	h := &header{command: "run"}
	for n, line := range strings.Split(string(src), "\n") {
		if !strings.HasPrefix(line, "#") {
			break
		}
		switch {
		case needsLine.MatchString(line):
			h.needs = append(h.needs, strings.Fields(needsLine.FindStringSubmatch(line)[1])...)
		case backends.MatchString(line):
			h.backends = strings.Fields(backends.FindStringSubmatch(line)[1])
		case command.MatchString(line):
			h.command = command.FindStringSubmatch(line)[1]
		case beforeLine.MatchString(line):
			h.before = beforeLine.FindStringSubmatch(line)[1]
		case expectLine.MatchString(line):
			m := expectLine.FindStringSubmatch(line)
			e := expect{m[1], m[2], m[3]}
			if e.verb == "stdout" || e.verb == "stderr" {
				if e.value, err = strconv.Unquote(e.value); err != nil {
					return nil, fmt.Errorf("%s:%d: %q is no quoted text", path, n+1, m[3])
				}
			}
			h.expects = append(h.expects, e)
		case strings.HasPrefix(line, "# expect"), strings.HasPrefix(line, "# needs"), strings.HasPrefix(line, "# before"),
			strings.HasPrefix(line, "# command:"), strings.HasPrefix(line, "# backends"):
			return nil, fmt.Errorf("%s:%d: %q is not understood", path, n+1, line)
		}
	}
	if len(h.needs) == 0 || !slices.ContainsFunc(h.expects, func(e expect) bool { return e.subject == "hutch" }) {
		return nil, fmt.Errorf("%s: the header must say what the example needs, and what hutch ends with", path)
	}
	return h, nil
}
