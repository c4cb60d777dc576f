package tools

// Def is what a model, and the person who watches it, is notified of a tool besides its arguments.
type Def struct {
	Name, Title, Description string
	Effect                   Effect
}

// Effect is what a tool does to its surroundings.
type Effect int

// The effects.
const (
	Reads      Effect = iota // changes nothing
	Adds                     // changes something inside of a sandbox, and destroys nothing
	Idempotent               // a second time changes nothing further
	Destroys                 // takes something away
)

// The tools that mean the same wherever they are offered.
var (
	ListFiles  = Def{"list_files", "List files", "Lists files below a directory of a sandbox, in path order. Paths are relative to the workspace. \"next\" is the offset of the next page.", Reads}
	StatFile   = Def{"stat_file", "Describe a file", "Describes a file, directory or symbolic link of a sandbox.", Reads}
	ReadFile   = Def{"read_file", "Read a file", "Reads a file of a sandbox, or lines of it. \"next\" is the line to read on at.", Reads}
	WriteFile  = Def{"write_file", "Write a file", "Writes a file of a sandbox, with the directories that it needs, in one step.", Destroys}
	EditFile   = Def{"edit_file", "Edit a file", "Replaces exact pieces of text in a file of a sandbox. Each must be there exactly once, unless \"all\"; all edits are made or none.", Destroys}
	ApplyPatch = Def{"apply_patch", "Apply a patch", "Applies a patch to files of a sandbox: a unified diff, git's too, a *** Begin Patch block, or SEARCH/REPLACE blocks. Several files may be added, changed, renamed and deleted; all of it is done or nothing.", Destroys}
	Grep       = Def{"grep", "Search files", "Searches the files of a sandbox for lines that match a regular expression in RE2's syntax, in path order. \"next\" is the offset of the next page.", Reads}
	RemoveFile = Def{"remove_file", "Remove a file", "Removes a file of a sandbox, or with \"recursive\" a directory.", Destroys}
)
