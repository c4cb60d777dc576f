package units

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"1B": 1, "1b": 1, "512MiB": 512 << 20, "512m": 512 << 20, "512M": 512 << 20, "1g": 1 << 30, "1G": 1 << 30,
		"64k": 64 << 10, "2t": 2 << 40, "1Ki": 1024, "1mi": 1 << 20, "100MB": 100e6, "1kb": 1000, "1.5GiB": 3 << 29,
		"0.5k": 512, "1.0000001k": 1024, " 7 MiB ": 7 << 20, "9223372036854775807B": math.MaxInt64, "1tb": 1e12,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
}

func TestParseSizeRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "is not a size",
		"MiB":                          "is not a size",
		"-1MiB":                        "is not a size",
		"+1MiB":                        "is not a size",
		"1.MiB":                        "is not a size",
		".5MiB":                        "is not a size",
		"1e3B":                         "unknown unit",
		"1,5GiB":                       "unknown unit",
		"512":                          `"512" has no unit; write 512MiB for mebibytes or 512B for bytes`,
		"12 parsecs":                   `unknown unit "parsecs"`,
		"1PiB":                         "unknown unit",
		"0MiB":                         "less than one byte",
		"0.0001k":                      "less than one byte",
		"9223372036854775808B":         "too large",
		"99999999t":                    "too large",
		"1MiB\x1b[2J":                  `unknown unit "MiB\x1b[2J"`,
		strings.Repeat("9", 1e6) + "B": "is not a size",
	} {
		if n, err := ParseSize(in); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("ParseSize(%.20q) = %d, %v; want an error with %q", in, n, err, want)
		}
	}
}

func TestFormatSizeRoundTrip(t *testing.T) {
	for _, n := range []int64{1, 1023, 1024, 1025, 512 << 20, 3 << 29, 1 << 40, 5 << 40, math.MaxInt64} {
		if got, err := ParseSize(FormatSize(n)); err != nil || got != n {
			t.Errorf("%d became %s became %d, %v", n, FormatSize(n), got, err)
		}
	}
	if got := FormatSize(0); got != "0B" {
		t.Errorf("FormatSize(0) = %s", got)
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"30s": 30 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "1.5h": 90 * time.Minute, "3d": 72 * time.Hour} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"30":     `"30" has no unit; write 30s for seconds or 30m for minutes`,
		"0":      "has no unit",
		"1.5":    "has no unit",
		"":       "is not a duration",
		"30 sec": "is not a duration",
		"1.5d":   "is not a duration",
		"d":      "is not a duration",
		"-1d":    "is not a duration",
		"99999d": "is not a duration",
		"-5s":    "not longer than zero",
		"0s":     "not longer than zero",
	} {
		if d, err := ParseDuration(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseDuration(%q) = %v, %v; want an error with %q", in, d, err, want)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"512MiB", "1.5g", "7", "1e9B", "0x10k", "١MiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("message of %d bytes", len(err.Error()))
			}
			return
		}
		if n < 1 {
			t.Fatalf("ParseSize(%q) = %d", s, n)
		}
		if m, err := ParseSize(FormatSize(n)); err != nil || m != n {
			t.Fatalf("%q: %d became %s became %d, %v", s, n, FormatSize(n), m, err)
		}
	})
}
