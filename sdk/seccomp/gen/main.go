// Command gen writes what is made from the table of system calls: the programs that package seccomp holds, into the
// directory PROGRAMS, and the page syscalls.md, into the directory PAGES. scripts/generate runs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/sdk/seccomp/internal/table"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./sdk/seccomp/gen PROGRAMS PAGES")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func write(programs, pages string) error {
	arches, err := table.Arches()
	if err != nil {
		return err
	}
	for _, a := range arches {
		for name, groups := range map[string][]table.Group{"filter_": table.Groups(), "shared_": table.Shared()} {
			program, err := table.Assemble(a, groups)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(programs, name+a.Name+".bpf"), table.Bytes(program), 0o644); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(pages, "syscalls.md"), []byte(table.Page()), 0o644)
}
