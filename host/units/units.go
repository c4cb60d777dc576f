// Package units reads and writes the sizes and durations of run files and flags, the same way in both.
package units

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// factors are the units of a size in lower case. A letter alone is binary, as docker takes it; with B it is decimal,
// as the standard has it; with i or iB it is binary again, as Kubernetes and the standard write it.
var factors = map[string]int64{
	"b": 1,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
	"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
}

// Size is a number of bytes, in text such as 512MiB.
type Size int64

func (s Size) String() string { return FormatSize(int64(s)) }

// MarshalText implements [encoding.TextMarshaler].
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what ParseSize takes.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := ParseSize(string(text))
	*s = Size(n)
	return err
}

// Duration is a time, in text such as 1m30s.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what ParseDuration takes.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	*d = Duration(v)
	return err
}

const sizeUnits = "B, KiB, MiB, GiB, TiB (or k, m, g, t), KB, MB, GB, TB"

// ParseSize reads a number of bytes with its unit: 512MiB, 1.5GiB, 64k, 1g, 100MB. k, m, g and t alone are binary, as
// docker takes them, and so are KiB … TiB and Ki … Ti; KB … TB are decimal. Case does not count. A number without
// a unit is refused: B says bytes. A fraction of a byte is dropped; the result is from 1 to 2^63-1.
func ParseSize(s string) (int64, error) {
	number, unit := split(s)
	if number == "" {
		return 0, fmt.Errorf("%s is not a size; write a number with its unit, such as 512MiB", quote(s))
	}
	if unit == "" {
		return 0, fmt.Errorf("%s has no unit; write %sMiB for mebibytes or %sB for bytes", quote(s), number, number)
	}
	factor, ok := factors[strings.ToLower(unit)]
	if !ok {
		return 0, fmt.Errorf("%s has the unknown unit %s; the units are %s", quote(s), quote(unit), sizeUnits)
	}
	n, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("%s is not a size; write a number with its unit, such as 512MiB", quote(s))
	}
	n.Mul(n, new(big.Rat).SetInt64(factor))
	if n.Cmp(big.NewRat(1, 1)) < 0 {
		return 0, fmt.Errorf("%s is less than one byte", quote(s))
	}
	if n.Cmp(new(big.Rat).SetInt64(math.MaxInt64)) > 0 {
		return 0, fmt.Errorf("%s is too large; at most %s fit", quote(s), FormatSize(math.MaxInt64))
	}
	return new(big.Int).Quo(n.Num(), n.Denom()).Int64(), nil
}

// split parts a number, digits with at most one point, from what follows it. Either is empty when it is not there;
// the number is empty too when it is longer than any size.
func split(s string) (number, unit string) {
	s = strings.TrimSpace(s)
	digits, points, i := 0, 0, 0
	for ; i < len(s); i++ {
		if c := s[i]; c >= '0' && c <= '9' {
			digits++
		} else if c == '.' && points == 0 && digits > 0 {
			points++
		} else {
			break
		}
	}
	if digits == 0 || i > 40 || s[i-1] == '.' {
		return "", s
	}
	return s[:i], strings.TrimLeft(s[i:], " ")
}

// FormatSize writes n bytes exactly, in the largest unit that divides it: 512MiB, 64MB, 1025B, 0B.
func FormatSize(n int64) string {
	for _, u := range []struct {
		name   string
		factor int64
	}{
		{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"TB", 1e12}, {"MiB", 1 << 20}, {"GB", 1e9}, {"MB", 1e6}, {"KiB", 1 << 10},
		{"KB", 1e3},
	} {
		if n != 0 && n%u.factor == 0 {
			return fmt.Sprintf("%d%s", n/u.factor, u.name)
		}
	}
	return fmt.Sprintf("%dB", n)
}

// ParseDuration reads a Go duration, such as 30s, 1m30s or 250ms, or a whole number of days, such as 3d, and refuses a
// bare number with a message that names the unit. The result is greater than zero.
func ParseDuration(s string) (time.Duration, error) {
	number, unit := split(s)
	if number != "" && unit == "" {
		return 0, fmt.Errorf("%s has no unit; write %ss for seconds or %sm for minutes", quote(s), number, number)
	}
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if days, notDays := strconv.ParseUint(number, 10, 16); unit == "d" && notDays == nil {
		d, err = time.Duration(days)*24*time.Hour, nil
	}
	if err != nil {
		return 0,
			fmt.Errorf("%s is not a duration; write numbers with their units (ms, s, m, h), such as 30s or 1m30s, or days, "+
				"such as 3d", quote(s))
	}
	if d <= 0 {
		return 0, fmt.Errorf("%s is not longer than zero", quote(s))
	}
	return d, nil
}

// quote shows what somebody wrote, bounded and escaped.
func quote(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%q…", s[:60])
	}
	return fmt.Sprintf("%q", s)
}
