// Command genref writes the reference pages whose source is Go source: the fields of the result object and of events,
// with their comments, and the types of events. It is run from the root of the project, by scripts/generate.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// page is one file of the reference: an introduction, and types of a package that follow it.
type page struct {
	file  string
	dir   string // of the package
	intro string
	types []string // in the order of the page; the fields of the others are reached from these
	enums []enum   // types of which all constants are listed
	// more are types of other packages that fields have, and the page shall describe: directory to names.
	more map[string][]string
}

// enum is a type with named values.
type enum struct{ dir, name string }

var pages = []page{
	{
		file: "result.md", dir: "host/result", types: []string{"Result"},
		intro: "# Results\n\n`hutch run -o json` prints one object of schema `hutch.result/v1` for each run: one indented " +
			"object " +
			"when there is one run, one object a line when there are several. The same object is in the last event of the run, " +
			"and what `hutch show -o json` prints; " +
			"[schema.json](../../host/result/schema.json) is its JSON schema. Fields are only ever added within a version; " +
			"`omitempty` fields are left out when there is nothing to say.\n",
		more: map[string][]string{
			"host/outputs": {"Output", "Skipped"},
			"host/store":   {"ChainRef"},
			"sdk":          {"Traffic", "FileUse", "Used", "Tokens"},
			"host/diag":    {"Range", "Pos", "Diagnostic", "Snippet", "Line", "Value", "Related"},
		},
		enums: []enum{{"sdk", "Cause"}},
	},
	{
		file: "events.md", dir: "host/store", types: []string{"Event", "FileRef"},
		enums: []enum{{"host/store", "EventType"}, {"host/store", "Problem"}},
		intro: "# Events\n\n`events.jsonl` in the record of a run is its event chain: one object of schema " +
			"`hutch.event/v1` a line, each of which " +
			"holds the hash of the one before it. `hutch show --events` prints it, and `hutch audit verify` checks it. " +
			"Events point at files by path, size " +
			"and hash, and never hold what is in them.\n\n" +
			"The chain shows consistency, not authorship: it is not signed.\n",
	},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./internal/genref DIR")
		os.Exit(2)
	}
	for _, p := range pages {
		var b bytes.Buffer
		err := p.write(&b)
		if err == nil {
			err = os.MkdirAll(os.Args[1], 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], p.file), b.Bytes(), 0o644)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "genref: %s: %v\n", p.file, err)
			os.Exit(1)
		}
	}
}
