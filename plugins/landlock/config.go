package main

import (
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/gitguard"
)

// Config is the backend "landlock" block of a run file.
type Config struct {
	ROPaths []string `hutch:"ro_paths" doc:"Absolute paths that commands may read besides the system's, for example a toolchain below /opt. /usr is always readable."`
	Git     string   `hutch:"git" default:"readonly" doc:"What commands may do to the git repositories in a shared workspace: readonly refuses one that has any, because Landlock cannot keep a part of a directory read-only; writable leaves them open, hooks and settings included, and a program can plant some that your next git command runs."`
}

func configOf(spec *sdk.Spec) *Config { return sdk.ConfigOf[Config](spec) }

// closed are directories that no run file may open: what they hold is about the machine, or about everybody's
// processes.
var closed = []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp"}

// Validate implements [sdk.Validator].
func (c *Config) Validate() (ds []sdk.Diagnostic) {
	for i, p := range c.ROPaths {
		bad := func(summary, detail string) {
			ds = append(ds, sdk.Diagnostic{Severity: sdk.SeverityError, Path: fmt.Sprintf("ro_paths[%d]", i), Summary: summary,
				Detail: detail})
		}
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
			bad("a path to read must be absolute and clean, and not the root", "it is "+strconv.Quote(p))
			continue
		}
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			real = p
		}
		for _, dir := range closed {
			if real != "/" && !strings.HasPrefix(real+"/", dir+"/") && !strings.HasPrefix(dir+"/", real+"/") {
				continue
			}
			bad("this path stays closed to commands", strconv.Quote(p)+" is, contains or lies below "+dir)
			break
		}
	}
	if c.Git != "" && c.Git != gitguard.ReadOnly && c.Git != gitguard.Writable {
		ds = append(ds, sdk.Diagnostic{Severity: sdk.SeverityError, Path: "git", Summary: "git must be readonly or writable",
			Detail: "it is " + strconv.Quote(c.Git)})
	}
	return ds
}
