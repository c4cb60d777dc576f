package review

import (
	"strings"

	"github.com/hutch-run/hutch/sdk/safepath"
)

// obeyedFiles are what common tools of a developer's machine execute, or take orders from, when the user only enters a
// directory, opens it, or gives an everyday command that is not about the file. What a user asks a tool to run by name
// (a Makefile, a package's scripts, tests) is not here: that is the code under review. A name that ends with a slash
// is a directory with all in it, and the name itself.
var obeyedFiles = map[string]string{
	".gitmodules":             "git",
	".gitattributes":          "git",
	".lfsconfig":              "git",
	".husky/":                 "git",
	".githooks/":              "git",
	".pre-commit-config.yaml": "pre-commit",
	"lefthook.yml":            "lefthook",
	"lefthook.yaml":           "lefthook",
	".lefthook.yml":           "lefthook",
	".lefthook.yaml":          "lefthook",
	".envrc":                  "direnv",
	".mise.toml":              "mise",
	"mise.toml":               "mise",
	".mise/":                  "mise",
	".vscode/":                "an editor",
	".idea/":                  "an editor",
	".zed/":                   "an editor",
	".exrc":                   "an editor",
	".vimrc":                  "an editor",
	".nvimrc":                 "an editor",
	".nvim.lua":               "an editor",
	".dir-locals.el":          "an editor",
	".devcontainer/":          "an editor",
	".devcontainer.json":      "an editor",
	".claude/":                "a coding agent",
	".cursor/":                "a coding agent",
	".codex/":                 "a coding agent",
	".gemini/":                "a coding agent",
	".mcp.json":               "a coding agent",
	".gdbinit":                "a debugger",
	".lldbinit":               "a debugger",
	".npmrc":                  "npm",
	".pnpmfile.cjs":           "pnpm",
	".yarnrc.yml":             "yarn",
	".yarnrc":                 "yarn",
	".cargo/":                 "cargo",
	".bazelrc":                "bazel",
	".hutch/":                 "hutch",
}

// obeyed names the tool that obeys a file at this path, or "".
func obeyed(p string) string {
	for rest := p; ; {
		name, below, more := strings.Cut(rest, "/")
		key := name
		if !plain(name) {
			key = safepath.Fold(name)
		}
		if tool := obeyedFiles[key+"/"]; tool != "" {
			return tool
		}
		if !more {
			return obeyedFiles[key]
		}
		rest = below
	}
}

// plain reports whether a name is its own fold, so that the tables can be asked as it is.
func plain(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= 0x80 || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}
