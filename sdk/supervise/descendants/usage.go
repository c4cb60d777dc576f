// Package descendants finds and ends the processes below another one.
//
// Where that one is the reaper of orphans (PR_SET_CHILD_SUBREAPER) nothing leaves
// the list but by dying: not by forking twice, not by its own session. It
// needs /proc, and a kernel that lists children there (CONFIG_PROC_CHILDREN).
package descendants

// Usage is what processes use together.
type Usage struct {
	Processes int
	CPU       uint64 // clock ticks since each began
	// Memory is what they have for themselves or share with each other, in bytes. Pages of files are left out, which all
	// of the machine share.
	Memory uint64
}
