// Package examples holds the test that every run file and every script in examples/ does what its header comment says.
// The header is for people and for the test alike:
//
//	# needs: bwrap python3              programs, and registry for what is no program; backend is that of a script
//	# command: generate                by which hutch executes a run file; default run
//	# backends: bwrap podman            of a script: those that it is run with, as its argument
//	# before podman: podman/image.sh    what is run first where podman is needed, below examples/
//	# expect hutch: exit 0              of the whole call
//	# expect NAME: exit 3               of the run NAME, the program's own code; of a script NAME is its own name
//	# expect NAME: cause oom            or: cause oom, with an rlimit exited
//	# expect NAME: stdout "text"        contained in it; stderr likewise
//	# expect NAME: output report.json   or: no output scratch.tmp
//	# expect NAME: change report.txt    in the workspace
package examples
