package backendtest

import (
	"encoding/json"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hutch-run/hutch/sdk"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

func describeChecks() []Check {
	// describe proves something of the description, attributes and blocks something of each one in the schema.
	describe := func(run func(*C, *pb.DescribeResponse)) func(*C) { return func(c *C) { run(c, c.describe()) } }
	attributes := func(run func(c *C, where string, a sdk.Attribute)) func(*C) {
		return func(c *C) {
			for where, s := range schemas("the block", c.facts.Schema) {
				for _, a := range s.Attributes {
					run(c, where, a)
				}
			}
		}
	}
	blocks := func(run func(c *C, where string, b sdk.Block)) func(*C) {
		return func(c *C) {
			for where, s := range schemas("the block", c.facts.Schema) {
				for _, b := range s.Blocks {
					run(c, where, b)
				}
			}
		}
	}
	matches := func(what, pattern string, of func(*pb.DescribeResponse) string) func(*C) {
		return describe(func(c *C, d *pb.DescribeResponse) {
			if !regexp.MustCompile(pattern).MatchString(of(d)) {
				c.Fatalf("the %s is %q", what, of(d))
			}
		})
	}
	return []Check{
		row("describe/answers", "Describe answers within a second, 20 times in a row",
			"compute the description once, without looking at the machine",
			func(c *C) { c.quickest(time.Second, func() { c.describe() }) }),
		row("describe/identical", "Describe says the same again, in another process too, for a host may remember it",
			"describe what the binary is, and not what the machine is; that is for Check and Plan",
			describe(func(c *C, first *pb.DescribeResponse) {
				if again := c.describe(); !proto.Equal(first, again) {
					c.Fatalf("first %v, then %v", first, again)
				}
				other, err := c.fresh(StartOptions{}).rpc.Describe(c.ctx, &pb.DescribeRequest{HostVersion: "9.9.9"})
				c.ok("another instance", err)
				if !proto.Equal(first, other) {
					c.Fatalf("one instance says %v, another one %v", first, other)
				}
			})),
		row("describe/concurrent", "Describe can be called by many at once",
			"share nothing that is not locked", func(c *C) {
				i := c.shared()
				c.atOnce(50, func(int) error { _, err := i.rpc.Describe(c.ctx, &pb.DescribeRequest{}); return err })
			}),
		row("describe/name", "the name can stand in hutch-backend-NAME and in a run file",
			"take a name that matches ^[a-z][a-z0-9-]*$ and has at most 32 characters",
			matches("name", `^[a-z][a-z0-9-]{0,31}$`, (*pb.DescribeResponse).GetName)),
		row("describe/version", "the version is a semantic one",
			"write 1.2.3, without a leading v", matches("version", `^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`,
				(*pb.DescribeResponse).GetVersion)),
		row("describe/summary", "the summary is one informative line",
			"say in one line what stands between the code and the host",
			matches("summary", `^[^\n\r\x1b]*\S[^\n\r\x1b]{3,}\S[^\n\r\x1b]*$`,
				(*pb.DescribeResponse).GetSummary)),
		row("describe/isolation", "the isolation is one that hosts know how to rank",
			"choose none, process, namespace, container, vm or remote vm", describe(func(c *C, d *pb.DescribeResponse) {
				if i := d.GetIsolation(); i < pb.Isolation_ISOLATION_NONE || i > pb.Isolation_ISOLATION_PROCESS {
					c.Fatalf("the isolation is %v", i)
				}
			})),
		row("describe/capabilities", "each capability is known, and named once",
			"list only plan attach list inspect put get remove changes reset stop tty secrets dial observe fork budget "+
				"ahead allow",
			describe(func(c *C, d *pb.DescribeResponse) {
				c.subset("capability", d.GetCapabilities(),
					"plan attach list inspect put get remove changes reset stop tty secrets dial observe fork budget ahead "+
						"allow")
			})),
		row("describe/limits", "each limit is known, and named once",
			"list only timeout memory cpus pids disk files", describe(func(c *C, d *pb.DescribeResponse) {
				c.subset("limit", d.GetLimits(), "timeout memory cpus pids disk files")
			})),
		row("describe/modes",
			"workspace modes, network modes and formats are known and named once, and there is at least one network mode",
			"list only private shared readonly; none filtered full; tar file git-bundle",
			describe(func(c *C, d *pb.DescribeResponse) {
				c.subset("workspace mode", d.GetWorkspaces(), "private shared readonly")
				c.subset("network mode", d.GetNetworks(), "none filtered full")
				c.subset("format", d.GetFormats(), "tar file git-bundle")
				if len(d.GetNetworks()) == 0 {
					c.Fatalf("no network mode is claimed, so that nothing can run")
				}
			})),
		row("describe/formats-for-files", "a backend that takes or gives files says in what form",
			"list the formats that Put and Get speak", func(c *C) {
				if (c.facts.Has(sdk.CapPut) || c.facts.Has(sdk.CapGet)) && len(c.facts.Formats) == 0 {
					c.Fatalf("put or get is claimed, and no format")
				}
			}),
		row("describe/environment", "the variables that the plugin wants to see have plain names",
			"name variables, not values, and no HUTCH_ or PLUGIN_ ones: those are the handshake's",
			describe(func(c *C, d *pb.DescribeResponse) {
				for _, e := range d.GetEnvironment() {
					if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(e) ||
						strings.HasPrefix(e, "HUTCH_") || strings.HasPrefix(e, "PLUGIN_") {
						c.Fatalf("it wants to see %q", e)
					}
				}
			})),
		row("describe/schema-names", "each attribute and block of the schema has a name that HCL can write, once",
			"match ^[a-z][a-z0-9_]*$, and give no name to two things of one block", func(c *C) {
				for where, s := range schemas("the block", c.facts.Schema) {
					var names []string
					for _, a := range s.Attributes {
						names = append(names, a.Name)
					}
					for _, b := range s.Blocks {
						names = append(names, b.Name)
					}
					for i, n := range names {
						if !regexp.MustCompile(`^[a-z][a-z0-9_]*$`).MatchString(n) || slices.Contains(names[:i], n) {
							c.Fatalf("%q in %s is no name, or is there twice", n, where)
						}
					}
				}
			}),
		row("describe/schema-types", "each type of the schema is an HCL type constraint",
			"write string, number, bool, any, list(T), set(T), map(T), object({name = T, other = optional(T)}) or tuple([T])",
			attributes(func(c *C, where string, a sdk.Attribute) {
				if !isType(a.Type) {
					c.Fatalf("the type %q of %s in %s is no type constraint", a.Type, a.Name, where)
				}
			})),
		row("describe/schema-docs", "each attribute and block is documented",
			"write a sentence with units and bounds into each doc", func(c *C) {
				attributes(func(c *C, where string, a sdk.Attribute) { c.wantDoc(a.Doc, a.Name, where) })(c)
				blocks(func(c *C, where string, b sdk.Block) { c.wantDoc(b.Doc, "the block "+b.Name, where) })(c)
			}),
		row("describe/schema-defaults", "each default is JSON, and nothing required has one",
			"drop the default or the required; write the default as JSON",
			attributes(func(c *C, where string, a sdk.Attribute) {
				if a.Default != nil && (!json.Valid(a.Default) || a.Required) {
					c.Fatalf("%s in %s: required %v, default %s", a.Name, where, a.Required, a.Default)
				}
			})),
		row("describe/schema-blocks", "each nested block has a nesting and bounds that can be met",
			"use single, list or map, with 0 <= min, and min <= max unless max is 0",
			blocks(func(c *C, where string, b sdk.Block) {
				known := slices.Contains([]sdk.Nesting{sdk.NestingSingle, sdk.NestingList, sdk.NestingMap}, b.Nesting)
				if !known || b.Min < 0 || b.Max < 0 || b.Max > 0 && b.Min > b.Max {
					c.Fatalf("the block %s in %s: nesting %q, min %d, max %d", b.Name, where, b.Nesting, b.Min, b.Max)
				}
			})),
	}
}

func (c *C) describe() *pb.DescribeResponse {
	d, err := c.shared().rpc.Describe(c.ctx, &pb.DescribeRequest{HostVersion: "conformance suite"})
	c.ok("describe", err)
	return d
}

// subset ends the check unless got holds only known words, each once.
func (c *C) subset(what string, got []string, known string) {
	for i, g := range got {
		if !slices.Contains(strings.Fields(known), g) {
			c.Fatalf("the %s %q is not one of %s", what, g, known)
		}
		if slices.Contains(got[:i], g) {
			c.Fatalf("the %s %q is claimed twice", what, g)
		}
	}
}

func (c *C) wantDoc(doc, what, where string) {
	if strings.TrimSpace(doc) == "" {
		c.Fatalf("%s in %s has no doc", what, where)
	}
}

// schemas yields a schema and those of its nested blocks, each with where it is.
func schemas(where string, s sdk.Schema) iter.Seq2[string, sdk.Schema] {
	return func(yield func(string, sdk.Schema) bool) {
		if !yield(where, s) {
			return
		}
		for _, b := range s.Blocks {
			for at, below := range schemas(where+"."+b.Name, b.Schema) {
				if !yield(at, below) {
					return
				}
			}
		}
	}
}

// reductions make one type of what is around types, from the inside out: $ is a type, ? an optional one, @ the name of
// an object's attribute and what follows it.
var reductions = []struct{ from, to string }{
	{`[A-Za-z_][A-Za-z0-9_-]*\s*[=:]`, `@`},
	{`\b(string|number|bool|any)\b`, `$$`},
	{`[ \t\r]+`, ``},
	{`\b(list|set|map)\(\n*\$\n*\)`, `$$`},
	{`\boptional\(\n*\$\n*\)`, `?`},
	{`\btuple\(\n*\[\n*(\$\n*(,\n*\$\n*)*(,\n*)?)?\]\n*\)`, `$$`},
	{`\bobject\(\n*\{\n*(@\n*[$?]((,|\n)\n*@\n*[$?])*\n*(,\n*)?)?\}\n*\)`, `$$`},
}

// isType reports whether s is an HCL type constraint.
func isType(s string) bool {
	if strings.ContainsAny(s, "$?@") {
		return false
	}
	for before := ""; before != s; {
		before = s
		for _, r := range reductions {
			s = regexp.MustCompile(r.from).ReplaceAllString(s, r.to)
		}
	}
	return strings.TrimSpace(s) == "$"
}
