//go:build !linux

package handover

// Do hands nothing over: hutch serve needs Linux.
func Do([]string) (code int, taken bool, why string) { return 0, false, "" }
