// Package review shows what a sandbox changed in a project, and brings it back: all of it, chosen files, or chosen
// hunks.
//
// It knows three sides: the base, what the project looked like when the sandbox was made; the project as it is; and the
// sandbox's workspace, every byte of which is hostile. A path that only the sandbox changed is applied, one that both
// changed differently is a conflict and never an overwrite.
//
// What is applied is what was read once, into our own stage; what was shown is what is applied. An apply is one
// transaction: a journal on disk says what will be done before the first path is touched, so that the next process
// after a crash puts the project back as it was. The versions that were replaced stay for an undo.
package review
