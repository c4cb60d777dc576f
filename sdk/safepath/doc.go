// Package safepath decides whether a name that came from somewhere else — a run file, a model's answer, a tar
// header, a sandbox — may be used as the path of a file below a directory.
//
// A safe path is relative, clean, slash-separated, stays inside its root without help from the file system, holds
// neither NUL nor control characters, is valid UTF-8, and is not longer or deeper than the rules allow. A Set adds
// what a single path cannot tell: that two paths would be the same file on a file system that folds case or
// normalises Unicode, or that one path needs as a directory what another one makes a file.
//
// The package looks at strings only and never at the file system. A checked path is therefore not a licence to open
// it by name: symbolic links on disk can still lead out of the root. Open it through an os.Root.
package safepath
