// Package pull brings back what was committed in a sandbox of package push.
//
// It waits for the output bundle, checks it on a private copy (package bundle), keeps the commits as refs/hutch/NAME in
// the user's repository, and moves the branch by a fast-forward only. Each step that cannot be done says what is kept
// where, and nothing is forced.
package pull
