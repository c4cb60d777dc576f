// Package store keeps on disk what hutch must not lose: the record of each run and of each persistent sandbox, the
// intents by which `hutch gc` finishes what a dead process began, logs, the dependency cache and private runtime
// directories. It is the one place that knows where any of it lies. It imports nothing of hutch but host/flock and
// helpers of package sdk for safe paths and files; every other package of the host may import it.
//
// Start reading at [Store] (store.go), then run.go and runs.go for runs, sandbox.go for persistent sandboxes, chain.go
// for the event chain and verify.go for what it proves.
//
// # A run's directory
//
//	                 by the caller); its last one how it ended, with the result. It is read-only once it is finished
//	                 and the audit chain knows its end
//	code/            every declared file exactly as the sandbox sees it
//	stdout.log       the tail of each stream, as many bytes as the limit allows; stdout.log.BASE while it is written
//	stderr.log
//	backend.log      what the backend logged about the run; only when it did
//	output/          the files the run left for its caller
//
// # What can be trusted after a crash
//
// Events are appended with one write each under an exclusive lock, so that a killed process leaves at most one torn
// line at the end, which the next writer sets aside and reports in an event. Files that are replaced, such as
// sandbox.json, are written beside their place and renamed into it, just after an event that has their new hash: so an
// interrupted replacement can be detected. The audit chain of the store, a chain of the same form, holds the head of
// every run's chain and how far that of each sandbox goes, so that a chain or a run that was cut, replaced or removed
// shows.
//
// The chain proves consistency, not authorship: it is not signed, and anyone who may write the whole store can make a
// new one that is consistent. Copy the head of the audit chain elsewhere if that matters.
//
// Everything here is safe for concurrent use by goroutines and by processes unless a comment says otherwise.
package store
