// Package deps knows how the dependencies of a language are installed: with which programs, which of the user's
// settings they may see, and what makes two lists of dependencies the same.
//
// It runs nothing itself. Package run executes the commands in their own sandbox, which has the network and sees
// neither the workspace nor the input of the run, and keeps what they leave in the cache of the store.
package deps

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// Installer is one program that can install the dependencies of a language.
type Installer struct {
	Name string
	// Version prints the installer's version; when it cannot be started, the next installer is tried.
	Version []string
	// Install is the command that installs into the directory dir.
	Install func(dir string, packages []string) []string
	// Locked is the command that installs into dir what the files of a [Lock] in the directory from say, and fails where
	// a package has another digest.
	Locked func(dir, from string) []string
	// Before is the option that leaves out releases after a time in RFC 3339, to which that is added.
	Before string
	// Env is what the installer needs besides the user's settings, which have precedence, in whatever case they are
	// written.
	Env map[string]string
	// Interpreter is the program for which it installs: its identity is part of the cache key.
	Interpreter string
}

// installers are tried in order.
var installers = map[string][]Installer{
	"python": {
		{
			Name:    "uv",
			Version: []string{"uv", "--version"},
			Install: func(dir string, packages []string) []string {
				return append([]string{"uv", "pip", "install", "--python", "python3", "--target", dir, "--no-config", "--no-cache",
					"--"}, packages...)
			},
			Locked: func(dir, from string) []string {
				return []string{"uv", "pip", "install", "--python", "python3", "--target", dir, "--no-config", "--no-cache",
					"--require-hashes", "-r", from + "/requirements.txt"}
			},
			Before:      "--exclude-newer=",
			Env:         map[string]string{"UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"},
			Interpreter: "python3",
		},
		{
			Name:    "pip",
			Version: []string{"python3", "-m", "pip", "--version"},
			Install: func(dir string, packages []string) []string {
				return append([]string{"python3", "-m", "pip", "install", "--target", dir, "--no-input", "--no-cache-dir",
					"--disable-pip-version-check", "--progress-bar", "off", "--"}, packages...)
			},
			Locked: func(dir, from string) []string {
				return []string{"python3", "-m", "pip", "install", "--target", dir, "--no-input", "--no-cache-dir",
					"--disable-pip-version-check", "--progress-bar", "off", "--require-hashes", "-r", from + "/requirements.txt"}
			},
			Before:      "--uploaded-prior-to=", // from pip 26.0; an older one refuses it
			Env:         map[string]string{"PIP_ROOT_USER_ACTION": "ignore", "PIP_CONFIG_FILE": "/dev/null", "PIP_RETRIES": "2"},
			Interpreter: "python3",
		},
	},
	"javascript": {
		{
			Name:    "npm",
			Version: []string{"npm", "--version"},
			Install: func(dir string, packages []string) []string {
				return append([]string{"npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--no-update-notifier",
					"--loglevel", "error", "--cache", "/tmp/hutch-npm", "--"}, packages...)
			},
			Locked: func(dir, from string) []string {
				return []string{"sh", "-c", `mkdir -p "$1" && cp "$2/package.json" "$2/package-lock.json" "$1" &&
					exec npm ci --prefix "$1" --no-audit --no-fund --no-update-notifier --loglevel error --cache /tmp/hutch-npm`, "sh", dir, from}
			},
			Before: "--before=",
			// By itself npm tries for more than a minute, also what cannot become better, such as a certificate.
			Env: map[string]string{
				"npm_config_userconfig": "/dev/null", "npm_config_globalconfig": "/dev/null/none",
				"npm_config_fetch_retries": "2", "npm_config_fetch_retry_mintimeout": "500",
				"npm_config_fetch_retry_maxtimeout": "4000",
			},
			Interpreter: "node",
		},
	},
}

// Command installs packages into dir, of no release from after before; the zero time takes all of them.
func (in *Installer) Command(dir string, packages []string, before time.Time) []string {
	argv := in.Install(dir, packages)
	if !before.IsZero() {
		argv = slices.Insert(argv, slices.Index(argv, "--"), in.Before+before.UTC().Format(time.RFC3339))
	}
	return argv
}

// For lists the installers of a language, best first; none when its dependencies cannot be installed.
func For(lang string) []Installer { return installers[lang] }

// Languages lists the languages whose dependencies can be installed.
func Languages() []string {
	l := make([]string, 0, len(installers))
	for name := range installers {
		l = append(l, name)
	}
	slices.Sort(l)
	return l
}

// Check refuses a list that would be something else than names of packages to an installer.
func Check(packages []string) error {
	for _, p := range packages {
		switch {
		case strings.TrimSpace(p) == "":
			return fmt.Errorf("a dependency is empty")
		case strings.HasPrefix(strings.TrimSpace(p), "-"):
			return fmt.Errorf("dependency %q would be an option of the installer", p)
		case !plaintext.IsLine(p):
			return fmt.Errorf("dependency %q holds a control character", p)
		case len(p) > 4096:
			return fmt.Errorf("dependency %.40q… is %d bytes long", p, len(p))
		}
	}
	return nil
}

// Identity is what distinguishes one installation of dependencies from another.
type Identity struct {
	Language string
	Packages []string
	MinAge   units.Duration `json:",omitempty"` // of a release when it is installed; 0 for any
	Lock     *Lock          `json:",omitempty"` // that has Packages; nil for none
	// Backend is its name with what makes the inside of its sandboxes, such as the image.
	Backend string
	Config  json.RawMessage
	// Interpreter identifies the version of the program that will use the packages.
	Interpreter string
	Arch        string
	// Settings are those of the user that choose where packages come from, without credentials.
	Settings map[string]string
}

// Key is the name of the cache entry: the same for the same packages in any order.
func (id Identity) Key() string {
	id.Packages = slices.Clone(id.Packages)
	slices.Sort(id.Packages)
	id.Packages = slices.Compact(id.Packages)
	b, err := json.Marshal(id)
	if err != nil { // Config is JSON that was decoded before
		b = fmt.Appendf(nil, "%#v", id)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
