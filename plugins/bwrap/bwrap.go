package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
)

// bwrapPlaces are where bwrap is looked for. PATH is the caller's, and a program
// that guards a boundary is not found by it.
var bwrapPlaces = []string{"/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"}

// bwrapVariable names the bwrap to use in the user's environment. A run file cannot
// name one: it is a program that runs on the host, outside every sandbox.
const bwrapVariable = "BWRAP_PATH"

// findBwrap returns the path of bwrap.
func findBwrap() (string, error) {
	places := bwrapPlaces
	configured := os.Getenv(bwrapVariable)
	if configured != "" {
		if !filepath.IsAbs(configured) {
			return "", sdk.Errorf(sdk.ReasonMissing, "%s is %q, which is not an absolute path", bwrapVariable, configured).
				WithFix("a program is never looked up in PATH or in the working directory; give its whole path, or unset the " +
					"variable")
		}
		places = []string{configured}
	}
	for _, p := range places {
		if unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
	}
	err := sdk.Errorf(sdk.ReasonMissing, "there is no executable bwrap at %s", places[0])
	if configured != "" {
		return "", err.WithFix("correct or unset %s", bwrapVariable)
	}
	return "", err.WithFix("apt-get install bubblewrap, dnf install bubblewrap or apk add bubblewrap")
}

var versions sync.Map // path and identity of the file -> version text

var versionPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^bubblewrap (\d+)\.(\d+)(?:\.(\d+))?`) })

// bwrapVersion asks bwrap for its version, once for each state of the file.
func bwrapVersion(path string) (text string, major, minor int, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", 0, 0, err
	}
	key := fmt.Sprint(path, st.Size(), st.ModTime().UnixNano())
	out, ok := versions.Load(key)
	if !ok {
		cmd := exec.Command(path, "--version")
		cmd.Env = []string{}
		b, err := cmd.Output()
		if err != nil {
			return "", 0, 0, fmt.Errorf("%s --version: %w", path, err)
		}
		out = string(b)
		versions.Store(key, out)
	}
	m := versionPattern().FindStringSubmatch(out.(string))
	if m == nil {
		return "", 0, 0, fmt.Errorf("%s --version says %q, which is not bubblewrap", path, out)
	}
	major, _ = strconv.Atoi(m[1])
	minor, _ = strconv.Atoi(m[2])
	return m[0], major, minor, nil
}
