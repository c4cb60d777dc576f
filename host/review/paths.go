package review

// What a review refuses in a sandbox's files is refused in its commits too; these are the rules about a path alone.

// GitPath reports whether an element of the path is .git, however a file system may spell that.
func GitPath(p string) bool { return gitPath(p) }

// ObeyedBy names the tool of the user's machine that runs or obeys a file at this path without being asked; "" for none.
// It is [RuleTools] that speaks of it.
func ObeyedBy(p string) string { return obeyed(p) }

// LeadsOut reports whether a symbolic link at path, which is relative to the project, can lead out of it; see [RuleLinks].
func LeadsOut(path, target string) bool { return leadsOut(parentOf(path), target) }
