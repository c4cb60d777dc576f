//go:build race

package runfile

// slack is by how much the race detector slows the code that is timed.
const slack = 8
