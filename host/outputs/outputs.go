// Package outputs collects the files a run left for its caller. The tree it reads is hostile, the tree it writes is a
// fresh directory of the host's own.
package outputs

import "github.com/hutch-run/hutch/sdk/safefile"

// Caps bound what is collected. Zero means the default.
type Caps struct {
	File    int64 // bytes of one file; default 1 GiB
	Total   int64 // bytes of all files; default 4 GiB
	Count   int   // files; default 10,000
	Entries int   // entries looked at, directories included; default 100,000
	Depth   int   // components of a path; default 32
}

func (c Caps) withDefaults() Caps {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.File <= 0 {
		c.File = 1 << 30
	}
	if c.Total <= 0 {
		c.Total = 4 << 30
	}
	def(&c.Count, 10_000)
	def(&c.Entries, 100_000)
	def(&c.Depth, 32)
	return c
}

// Output is one file that was collected.
type Output struct {
	Path   string `json:"path"` // below the output directory, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
	Mode   string `json:"mode"`   // permission bits in octal
	// From is the name that the program gave it, for as long as that is known: it is Path, unless the collector renamed
	// it.
	From string `json:"-"`
}

// Skipped is something that was there and was not collected.
type Skipped struct {
	Path   string          `json:"path"`
	Reason safefile.Reason `json:"reason"`
	Detail string          `json:"detail"`
}

// maxSkipped is how many skipped entries are listed.
const maxSkipped = 1000

// Result is what was found, in path order.
type Result struct {
	Outputs []Output  `json:"outputs"`
	Skipped []Skipped `json:"skipped"`
	// More counts what was skipped beyond the first 1,000 that are listed.
	More int `json:"more,omitempty"`
}
