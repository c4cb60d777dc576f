//go:build !linux

package confined

// Landlock returns 0: only Linux has it.
func Landlock() int { return 0 }
