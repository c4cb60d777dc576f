// Package run takes one run from its definition to a truthful result, and many runs at once.
//
// The steps of a run are always the same, and each one is an event of the run's chain:
//
//	plan          the backends of the run in order; the first that can hold every limit is taken
//	code          the declared files are written to the run's directory exactly as they will be mounted
//	dependencies  installed once, in their own sandbox that sees neither workspace nor input, or taken from the cache
//	create        an intent is on disk before anything is made outside
//	exec          the command runs; its streams go to the logs and to the caller
//	collect       outputs are copied, changes listed; all of it is taken for hostile
//	destroy       always, unless the sandbox is to be kept
//	result        what happened, with its evidence
//
// Whatever goes wrong on the way ends in a [result.Result] with the reason, never in a run that is silently weaker than
// what was asked for.
//
// # Secrets
//
// What a run file marks as sensitive stays out of everything hutch writes about the run: definition, events, result,
// diagnostics, traces. It is taken out of the text of the streams in the result too. The logs of the streams and what
// is shown live are the program's own bytes, unchanged: a program that prints its password has published it.
package run
