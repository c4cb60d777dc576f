package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
)

// TestS8DefaultsTable compares the table of defaults in the reference with the code.
func TestS8DefaultsTable(t *testing.T) {
	_, table, _ := strings.Cut(readPage(t, "docs/reference/limits.md"), "<!-- defaults -->")
	table, _, _ = strings.Cut(table, "<!-- end of defaults -->")
	for _, row := range []string{
		"| `memory` | three quarters of ",
		"| `disk` | " + sdk.Bytes(limits.DefaultDisk).String() + ", or three quarters of ",
		"| files and directories | one for each " + sdk.Bytes(limits.BytesPerFile).String() + " ",
		fmt.Sprintf("| `pids` | %d,", limits.DefaultPIDs),
		fmt.Sprintf("| `files` | %d,", limits.DefaultFiles),
		"| `cpus` | none |",
	} {
		if !strings.Contains(table, row) {
			t.Errorf("the table has no row %q", row)
		}
	}
}
