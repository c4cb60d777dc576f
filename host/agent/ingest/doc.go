// Package ingest understands what a model answered: which files it handed over, or which changes to files, in whatever
// way models do that.
//
// [Parse] is pure: bytes in, an [Answer] out. [Answer.Program] settles what of it is run and how, [Answer.Apply] works
// out what a patch makes of the files it is for. Neither touches a disk. What does is [Save], which writes the files of
// an answer with a run file, and [Proposal], which brings a patch to a directory through host/review: all of it or
// nothing, with the same rules as what comes out of a sandbox, and with undo.
//
// An answer is hostile. Paths follow the rules of a run file's; sizes and numbers are bounded as there; no input
// panics, hangs or takes more than a few times its own size in memory. What is wrong is an [Error] whose problems say
// where and what, so that the model can mend it. Nothing is guessed where two readings are possible: it is asked back
// instead.
package ingest
