// Package reference renders reference pages from what the program itself knows, so that they cannot be out of date.
package reference

import (
	"fmt"
	"io"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

// Backend writes the page of one backend in Markdown: what it says about itself, and all that its block may hold.
func Backend(w io.Writer, f *sdk.Facts) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Backend %s\n\n%s\n\n| | |\n|---|---|\n", f.Name, sentence(f.Summary))
	for _, row := range [][2]string{
		{"isolation", string(f.Isolation)},
		{"workspace modes", join(f.Workspaces)},
		{"network modes", join(f.Networks)},
		{"limits it can hold", join(f.Limits)},
		{"capabilities", join(f.Capabilities)},
		{"variables of the host that it reads", join(f.Environment)},
	} {
		if row[1] != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
		}
	}
	fmt.Fprintf(&b, "\n## The block\n\n")
	if len(f.Schema.Attributes) == 0 && len(f.Schema.Blocks) == 0 {
		fmt.Fprintf(&b, "`backend %q {}` takes no attributes.\n", f.Name)
	} else {
		fmt.Fprintf(&b, "```\n%s```\n", skeleton(f.Schema, fmt.Sprintf("backend %q", f.Name), ""))
		schema(&b, f.Schema, "")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func schema(b *strings.Builder, s sdk.Schema, path string) {
	if len(s.Attributes) > 0 {
		b.WriteString("\n| attribute | type | |\n|---|---|---|\n")
	}
	for _, a := range s.Attributes {
		doc := sentence(a.Doc)
		switch {
		case a.Required:
			doc += " Required."
		case len(a.Default) > 0 && string(a.Default) != "null":
			doc += fmt.Sprintf(" Default `%s`.", a.Default)
		}
		if a.Sensitive {
			doc += " Never printed or stored."
		}
		if a.Deprecated != "" {
			doc += " Deprecated: " + sentence(a.Deprecated)
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", path+a.Name, a.Type, strings.ReplaceAll(strings.TrimSpace(doc), "|", `\|`))
	}
	for _, bl := range s.Blocks {
		fmt.Fprintf(b, "\n### %s\n\n%s %s\n", path+bl.Name, sentence(bl.Doc), times(bl))
		schema(b, bl.Schema, path+bl.Name+".")
	}
}

// skeleton shows a block with the types of its attributes.
func skeleton(s sdk.Schema, header, indent string) string {
	var b strings.Builder
	b.WriteString(indent + header + " {\n")
	width := 0
	for _, a := range s.Attributes {
		width = max(width, len(a.Name))
	}
	for _, a := range s.Attributes {
		fmt.Fprintf(&b, "%s  %-*s = %s\n", indent, width, a.Name, a.Type)
	}
	for _, bl := range s.Blocks {
		h := bl.Name
		if bl.Nesting == sdk.NestingMap {
			h += ` "LABEL"`
		}
		b.WriteString(skeleton(bl.Schema, h, indent+"  "))
	}
	b.WriteString(indent + "}\n")
	return b.String()
}

func times(b sdk.Block) string {
	switch {
	case b.Nesting == sdk.NestingSingle:
		return "At most one."
	case b.Min > 0 && b.Max > 0:
		return fmt.Sprintf("From %d to %d of them.", b.Min, b.Max)
	case b.Min > 0:
		return fmt.Sprintf("At least %d.", b.Min)
	case b.Max > 0:
		return fmt.Sprintf("At most %d.", b.Max)
	}
	return "Any number of them."
}

func sentence(s string) string {
	if s = strings.TrimSpace(s); s != "" && !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

func join[T ~string](list []T) string {
	var out []string
	for _, v := range list {
		out = append(out, "`"+string(v)+"`")
	}
	return strings.Join(out, ", ")
}
