// Package files lists, reads, searches and changes the files of a sandbox, for a person or a coding agent.
//
// Paths are relative to the workspace, or absolute as a command in the sandbox sees them, below the workspace, the
// input or the output; all others are refused. Symbolic links are followed where they stay inside the workspace, an
// absolute one too when it leads below the place where commands see the workspace; one that leads out is refused and
// never followed.
//
// Where the backend says in which directories of this host the workspace lies ([sdk.Layers]), files are read there
// without asking it: as the overlay would show them, below descriptors, never through a link, never waiting for a FIFO,
// and only regular files with one link and a bounded size. Otherwise they are fetched, which is slower and gives the
// same answers. Nothing is ever written to the layers: writes, edits and removals go through the backend.
//
// Input and output are mounted into the workspace by the backend and no part of its layers. They are listed and
// searched when they are named, and not with the whole workspace.
package files
