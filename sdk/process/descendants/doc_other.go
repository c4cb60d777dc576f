//go:build !linux

// Package descendants is empty on systems other than Linux.
package descendants
