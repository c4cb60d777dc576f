package review

import "strings"

// obeyedFiles are what common tools of a developer's machine execute, or take orders from, when the user only enters a
// directory, opens it, or gives an everyday command that is not about the file. What a user asks a tool to run by name
// (a Makefile, a package's scripts, tests) is not here: that is the code under review.
var obeyedFiles = map[string]string{
	".gitmodules":             "git",
	".gitattributes":          "git",
	".lfsconfig":              "git",
	".pre-commit-config.yaml": "pre-commit",
	"lefthook.yml":            "lefthook",
	"lefthook.yaml":           "lefthook",
	".lefthook.yml":           "lefthook",
	".lefthook.yaml":          "lefthook",
	".envrc":                  "direnv",
	".mise.toml":              "mise",
	"mise.toml":               "mise",
	".exrc":                   "an editor",
	".vimrc":                  "an editor",
	".nvimrc":                 "an editor",
	".nvim.lua":               "an editor",
	".dir-locals.el":          "an editor",
	".devcontainer.json":      "an editor",
	".mcp.json":               "a coding agent",
	".gdbinit":                "a debugger",
	".lldbinit":               "a debugger",
	".npmrc":                  "npm",
	".pnpmfile.cjs":           "pnpm",
	".yarnrc.yml":             "yarn",
	".yarnrc":                 "yarn",
	".bazelrc":                "bazel",
}

// obeyedDirs are directories of the same kind: they and all in them.
var obeyedDirs = map[string]string{
	".husky":        "git",
	".githooks":     "git",
	".mise":         "mise",
	".vscode":       "an editor",
	".idea":         "an editor",
	".zed":          "an editor",
	".devcontainer": "an editor",
	".claude":       "a coding agent",
	".cursor":       "a coding agent",
	".codex":        "a coding agent",
	".gemini":       "a coding agent",
	".cargo":        "cargo",
	".hutch":        "hutch",
}

// obeyed names the tool that obeys a file at this path, or "".
func obeyed(p string) string {
	for rest := p; ; {
		name, below, more := strings.Cut(rest, "/")
		key := fold(name)
		if tool := obeyedDirs[key]; tool != "" {
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
