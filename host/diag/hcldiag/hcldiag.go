// Package hcldiag says in hutch's words where HCL's parser found something, and what.
package hcldiag

import (
	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/diag"
)

// Range is the same place in a diagnostic.
func Range(r hcl.Range) diag.Range {
	return diag.Range{File: r.Filename, Start: pos(r.Start), End: pos(r.End)}
}

func pos(p hcl.Pos) diag.Pos { return diag.Pos{Line: p.Line, Column: p.Column, Byte: p.Byte} }

// Diagnostics are HCL's findings as HCL words them, without excerpts. A run file has words of its own for most of them
// (host/runfile); this serves the files that hutch itself writes or that hold a few settings.
func Diagnostics(ds hcl.Diagnostics) diag.Diagnostics {
	var out diag.Diagnostics
	for _, d := range ds {
		one := diag.Diagnostic{Severity: diag.Error, Summary: d.Summary, Detail: d.Detail}
		if d.Severity == hcl.DiagWarning {
			one.Severity = diag.Warning
		}
		if d.Subject != nil {
			at := Range(*d.Subject)
			one.Range = &at
		}
		out = append(out, one)
	}
	return out
}
