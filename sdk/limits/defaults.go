package limits

// What a sandbox is held to when nobody asks for a limit, besides [DefaultMemory]: enough for any build, too little for
// a bomb or a leak to be felt outside. A hard limit of this process, or what the machine has free, may make it less.
const (
	DefaultPIDs  = 1024
	DefaultFiles = 1024     // open files of each process
	DefaultDisk  = 10 << 30 // bytes
)

// MinFiles is the least number of open files with which a program can be loaded.
const MinFiles = 8

// threeQuarters is the part of what is free that a default leaves to a sandbox.
func threeQuarters(free uint64) uint64 { return free / 4 * 3 }
