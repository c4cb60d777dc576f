// Package examples holds the test that every run file in examples/ does what its header comment says. The header is
// for people and for the test alike:
//
//	# needs: bwrap python3              programs, and registry for what is no program
//	# expect hutch: exit 0              of the whole call
//	# expect NAME: exit 3               of the run NAME, the program's own code
//	# expect NAME: cause oom            or: cause oom, with an rlimit exited
//	# expect NAME: stdout "text"        contained in it; stderr likewise
//	# expect NAME: output report.json   or: no output scratch.tmp
//	# expect NAME: change report.txt    in the workspace
package examples
