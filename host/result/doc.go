// Package result has the one object that says how a run ended: hutch.result/v1.
//
// It is the same on every backend, it is what the run's last event holds and what `-o json` prints, and everything else
// that hutch says about a finished run (the summary on a terminal, JUnit XML, annotations, the exit code) is made from
// it and from nothing else.
//
// Sensitive values never are in a result: not in the command, not in diagnostics, and not in the text of the streams,
// where a program may have printed one. The log files themselves hold the program's bytes as they were.
//
// Within one major version of the schema fields are added and never change their meaning; readers ignore those they
// do not know.
package result
