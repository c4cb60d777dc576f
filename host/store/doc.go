// Package store keeps on disk what hutch must not lose: the record of each run and its event chain, the intents that
// let `hutch gc` finish what a dead process began, and the dependency cache. It is the one place that knows where any
// of it lies.
//
// # A run's directory
//
//	run.json         who, what and when: what `hutch runs` lists
//	definition.json  the run as evaluated, secrets redacted by the caller
//	code/            every declared file exactly as the sandbox sees it
//	stdout.log       the tail of each stream, as many bytes as the limit allows
//	stderr.log
//	backend.log      what the backend logged about the run; only when it did
//	output/          the files the run left for its caller
//	result.json      the result, which names the head of the event chain
//	events.jsonl     the event chain
//
// # What can be trusted after a crash
//
// Events are appended with one write each under an exclusive lock, so that a killed process leaves at most one torn
// line at the end, which the next writer sets aside and reports in an event of its own. The result is
// written beside its place and renamed into it, and short records that change are lines of which the last whole one
// counts. Each of those has a hash over the ones before, which the events say. What is rewritten in the record of a
// sandbox is said in its chain just before, so that what a killed writer left is known as that. The audit chain of the store
// holds the head of every run's chain, so that a chain or a run that was cut, replaced or removed shows.
//
// The chain proves consistency, not authorship: it is not signed, and anyone who may write the whole store can make a
// new one that is consistent. Copy the head of the audit chain elsewhere if that matters.
//
// Everything here is safe for concurrent use by goroutines and by processes unless a comment says otherwise.
package store
