package runfile

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/sdk"
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

// Quote writes a string as a run file does, with templates escaped.
func Quote(s string) string { return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes()) }

// QuoteList writes a list of strings.
func QuoteList(l []string) string {
	var out []string
	for _, s := range l {
		out = append(out, Quote(s))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// WriteAttribute writes name = "value", and nothing for the empty value. The layout is for [Format], as that of
// WriteNetwork and WriteLimits is.
func WriteAttribute(w io.Writer, name, value string) {
	if value != "" {
		fmt.Fprintf(w, "%s = %s\n", name, Quote(value))
	}
}

// WriteNetwork writes a network block.
func WriteNetwork(w io.Writer, n network.Network) {
	fmt.Fprint(w, "network {\n")
	if n.Mode != sdk.NetworkFiltered && (n.Mode != sdk.NetworkNone || len(n.Publish) == 0) {
		WriteAttribute(w, "mode", string(n.Mode))
	}
	for _, l := range []struct {
		name  string
		value []string
	}{{"allow", n.Allow}, {"deny", n.Deny}, {"publish", n.Publish}} {
		if len(l.value) > 0 || l.name == "allow" && n.Mode == sdk.NetworkFiltered { // which may allow nothing
			fmt.Fprintf(w, "%s = %s\n", l.name, QuoteList(l.value))
		}
	}
	for _, s := range n.Secrets {
		writeSecret(w, s)
	}
	fmt.Fprint(w, "}\n")
}

func writeSecret(w io.Writer, s network.Secret) {
	fmt.Fprintf(w, "secret %s {\n", Quote(s.Name))
	switch f := s.From; {
	case f.Env != "":
		fmt.Fprintf(w, "from = env(%s)\n", Quote(f.Env))
	case f.File != "":
		fmt.Fprintf(w, "from = file(%s)\n", Quote(f.File))
	default:
		fmt.Fprintf(w, "command = %s\n", QuoteList(f.Command))
		if f.TTL != 0 {
			WriteAttribute(w, "ttl", f.TTL.String())
		}
	}
	fmt.Fprintf(w, "hosts = %s\n", QuoteList(s.Hosts))
	for _, r := range s.Rules {
		fmt.Fprint(w, "rule {\n")
		if len(r.Methods) > 0 {
			fmt.Fprintf(w, "methods = %s\n", QuoteList(r.Methods))
		}
		if len(r.Paths) > 0 {
			fmt.Fprintf(w, "paths = %s\n", QuoteList(r.Paths))
		}
		fmt.Fprint(w, "}\n")
	}
	fmt.Fprint(w, "}\n")
}

// WriteLimits writes a limits block, and nothing for no limits. comment, which may be nil, returns what is appended to
// the line of a limit.
func WriteLimits(w io.Writer, x Limits, comment func(sdk.Limit) string) {
	if x == (Limits{}) {
		return
	}
	fmt.Fprint(w, "limits {\n")
	for _, l := range AllLimits {
		text := l.Text(x)
		if text == "" {
			continue
		}
		if _, err := cty.ParseNumberVal(text); err != nil {
			text = Quote(text)
		}
		if comment != nil {
			text += comment(l.Name)
		}
		fmt.Fprintf(w, "%s = %s\n", l.Name, text)
	}
	fmt.Fprint(w, "}\n")
}
