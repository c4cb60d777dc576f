package sdk

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a number of bytes in a configuration struct. A run file gives it as
// "512MiB", "1.5GB", "100k" or as a plain number.
type Bytes int64

// Units by their lower-case names. One letter means a power of 1,024, as docker's users expect.
var byteUnits = map[string]float64{
	"": 1, "b": 1,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
}

// ParseBytes reads a size such as "512MiB"; fractions and any case are fine,
// negative numbers and unknown units are not.
func ParseBytes(s string) (Bytes, error) {
	t := strings.TrimSpace(s)
	i := 0
	for i < len(t) && (t[i] >= '0' && t[i] <= '9' || t[i] == '.') {
		i++
	}
	// Whole numbers are taken exactly, which a float would not do beyond 2^53.
	whole, werr := strconv.ParseInt(t[:i], 10, 64)
	n, err := strconv.ParseFloat(t[:i], 64)
	unit, ok := byteUnits[strings.ToLower(strings.TrimSpace(t[i:]))]
	if err != nil || !ok {
		return 0,
			fmt.Errorf("%q is not a size: write a number with one of the units B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, as in "+
				"512MiB", s)
	}
	if n*unit >= math.MaxInt64 {
		return 0, fmt.Errorf("the size %q is too big", s)
	}
	if werr == nil {
		return Bytes(whole) * Bytes(unit), nil
	}
	return Bytes(math.Round(n * unit)), nil
}

// String returns the size in the biggest unit that divides it: "512MiB", "1000B".
func (b Bytes) String() string {
	for _, u := range []struct {
		name string
		size Bytes
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b >= u.size && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}
