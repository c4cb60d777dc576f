// Package git drives the git of this host: in the user's own repository, and in private ones that hutch makes for a
// moment.
//
// It is never run inside anything that a sandbox can write. What comes back from one is a bundle, which package bundle
// takes apart in a private repository first.
//
// Every call gets the same surroundings: no hooks, no file system monitor, no credential helper, no pager, no editor,
// no question on the terminal, no transport but files, no lazy fetch, no replaced objects, no maintenance, and nothing
// of the environment but PATH and what names the user's own configuration. Hooks of the user are left out too, because
// core.hooksPath and hook managers lead into the work tree, which pulled commits change.
package git
