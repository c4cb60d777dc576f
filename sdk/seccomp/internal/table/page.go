package table

import (
	"fmt"
	"slices"
	"strings"
)

// Page is the table as a page of the reference.
func Page() string {
	var b strings.Builder
	b.WriteString("# System calls\n\n")
	paragraph(&b,
		"Commands in sandboxes of the backends bwrap and podman may make the system calls on this page and no others. "+
			"Both filters are "+
			"made from the table in `sdk/seccomp`, and so is this page (`make generate`). A call that is not on this page, "+
			"such as one of a newer kernel, returns "+
			"`ENOSYS`, with which C libraries fall back to an older one. A 32-bit call kills the process with `SIGSYS` on "+
			"bwrap, and the thread that makes it on podman; one of x32 does the same or returns `ENOSYS`. "+
			"Conditions look at the low 32 bits of an argument, as the kernel does.")
	paragraph(&b,
		"Podman's filter is loaded by its OCI runtime through libseccomp. A call that the machine's libseccomp does not "+
			"know yet returns `ENOSYS` there, "+
			"also where this page allows it.")
	section := func(title, intro string, groups []Group, want func(*Group) bool) {
		fmt.Fprintf(&b, "## %s\n\n", title)
		paragraph(&b, intro)
		for i := range groups {
			if g := &groups[i]; want(g) {
				g.write(&b)
			}
		}
	}
	section("Allowed", "What Docker's and Podman's default profiles allow without a capability, without what is below.",
		Groups(), func(g *Group) bool { return g.Answer == Allow })
	section("Allowed under a condition", "Any other arguments are refused.", Groups(),
		func(g *Group) bool { return g.When != nil })
	section("Refused", "Programs know these and get an answer that they can act on.", Groups(),
		func(g *Group) bool { return g.Answer != Allow && g.When == nil })
	section("Without namespaces", "The backend landlock has no namespaces. Its filter is the same but for these calls.",
		SharedChanges(), func(*Group) bool { return true })
	return strings.TrimSuffix(b.String(), "\n")
}

func (g *Group) write(b *strings.Builder) {
	fmt.Fprintf(b, "### %s\n\n", g.Title)
	names := g.Names()
	slices.Sort(names)
	paragraph(b, "`"+strings.Join(names, "` `")+"`")
	text := g.Reason
	if g.When != nil {
		text = "Allowed: " + g.When.Text + ". " + text
	}
	switch g.Answer {
	case Allow, Ask:
	case Ignore:
		text += " Other calls return 0 and do nothing."
	default:
		text += fmt.Sprintf(" Refused calls return `%s`.", map[Errno]string{EPERM: "EPERM", ENOSYS: "ENOSYS",
			EOPNOTSUPP: "EOPNOTSUPP", EAFNOSUPPORT: "EAFNOSUPPORT"}[g.Answer])
	}
	paragraph(b, text)
	paragraph(b, "Source: <"+g.Source+">")
}

// paragraph writes text in lines of at most 120 columns.
func paragraph(b *strings.Builder, text string) {
	width := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case width+1+len(word) > 120:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += len(word)
	}
	b.WriteString("\n\n")
}
