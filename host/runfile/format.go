package runfile

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/hutch-run/hutch/host/diag"
)

// Format returns the canonical layout of a run file. A file with a syntax error is not touched: src comes back as it
// is, with the diagnostics. Formatting twice changes nothing more.
func Format(name string, src []byte) ([]byte, diag.Diagnostics) {
	if _, diags := parse(name, src); diags.HasErrors() {
		s := sources{name: src}
		var out diag.Diagnostics
		for _, d := range diags {
			out = append(out, s.fromHCL(d, ""))
		}
		return src, inOrder(out)
	}
	out := src
	for range 8 { // what hclwrite moves in one pass can change what it does in the next
		next := bytes.Clone(out)
		if n := len(next); n > 0 && next[n-1] != '\n' {
			next = append(next, '\n')
		}
		next = hclwrite.Format(next)
		if bytes.Equal(next, out) {
			break
		}
		out = next
	}
	return out, nil
}

// FindRunFiles lists the *.hcl files below dir in lexical order, files of variables included, without entering hidden
// directories or symbolic links.
func FindRunFiles(dir string) ([]string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	var found []string
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != dir && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.Type().IsRegular() && strings.HasSuffix(d.Name(), ".hcl") && d.Name() != ".hutch.lock.hcl":
			found = append(found, p)
		}
		return nil
	})
	sort.Strings(found)
	return found, err
}
