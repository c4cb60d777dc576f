// Package units reads and writes the sizes and durations of run files and flags, the same way in both.
package units

import (
	"errors"
	"time"
)

// ParseSize reads a number of bytes with its unit: 512MiB, 1.5GiB, 64k, 1g, 100MB. k, m, g and t alone are binary, as
// docker takes them, and so are KiB … TiB; KB … TB are decimal. A number without a unit is refused: B says bytes. The
// result is from 1 to 2^63-1.
func ParseSize(s string) (int64, error) { return 0, errors.New("not implemented") }

// FormatSize writes n bytes exactly, in the largest binary unit that divides it: 512MiB, 1025B.
func FormatSize(n int64) string { return "" }

// ParseDuration reads a Go duration, such as 30s, 1m30s or 250ms, and refuses a bare number with a message that names
// the unit. The result is greater than zero.
func ParseDuration(s string) (time.Duration, error) { return 0, errors.New("not implemented") }
