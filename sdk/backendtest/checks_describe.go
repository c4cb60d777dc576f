package backendtest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
	"google.golang.org/protobuf/proto"
)

func describeChecks() []Check {
	return []Check{
		{ID: "describe/answers", Proves: "Describe answers within a second, 20 times in a row", Fix: "compute the description once, without looking at the machine",
			run: func(c *C) {
				best := time.Hour
				for range 20 {
					began := time.Now()
					c.describe()
					best = min(best, time.Since(began))
				}
				if best > time.Second {
					c.Fatalf("the quickest of 20 calls took %s", best)
				}
			}},
		{ID: "describe/identical", Proves: "Describe says the same again, in another process too, for a host may remember it", Fix: "describe what the binary is, and not what the machine is; that is for Check and Plan",
			run: func(c *C) {
				first := c.describe()
				if again := c.describe(); !proto.Equal(first, again) {
					c.Fatalf("first %v, then %v", first, again)
				}
				other, err := c.fresh(StartOptions{}).rpc.Describe(c.ctx, &pb.DescribeRequest{HostVersion: "9.9.9"})
				if err != nil {
					c.Fatalf("another instance: %v", err)
				}
				if !proto.Equal(first, other) {
					c.Fatalf("one instance says %v, another one %v", first, other)
				}
			}},
		{ID: "describe/concurrent", Proves: "Describe can be called by many at once", Fix: "share nothing that is not locked",
			run: func(c *C) {
				i := c.shared()
				var wg sync.WaitGroup
				errs := make([]error, 50)
				for n := range errs {
					wg.Go(func() { _, errs[n] = i.rpc.Describe(c.ctx, &pb.DescribeRequest{}) })
				}
				wg.Wait()
				for _, err := range errs {
					if err != nil {
						c.Fatalf("one of 50 calls: %v", err)
					}
				}
			}},
		{ID: "describe/name", Proves: "the name can stand in hutch-backend-NAME and in a run file", Fix: "take a name that matches ^[a-z][a-z0-9-]*$ and has at most 32 characters",
			run: func(c *C) {
				if n := c.describe().GetName(); !regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`).MatchString(n) {
					c.Fatalf("the name is %q", n)
				}
			}},
		{ID: "describe/version", Proves: "the version is a semantic one", Fix: "write 1.2.3, without a leading v",
			run: func(c *C) {
				if v := c.describe().GetVersion(); !semver().MatchString(v) {
					c.Fatalf("the version is %q", v)
				}
			}},
		{ID: "describe/summary", Proves: "the summary is one informative line", Fix: "say in one line what stands between the code and the host",
			run: func(c *C) {
				s := c.describe().GetSummary()
				if len(strings.TrimSpace(s)) < 5 || strings.ContainsAny(s, "\n\r\x1b") {
					c.Fatalf("the summary is %q", s)
				}
			}},
		{ID: "describe/isolation", Proves: "the isolation is one that hosts know how to rank", Fix: "choose none, process, namespace, container, vm or remote vm",
			run: func(c *C) {
				if i := c.describe().GetIsolation(); i < pb.Isolation_ISOLATION_NONE || i > pb.Isolation_ISOLATION_PROCESS {
					c.Fatalf("the isolation is %v", i)
				}
			}},
		{ID: "describe/capabilities", Proves: "each capability is known, and named once", Fix: "list only plan attach list inspect put get remove changes reset stop tty secrets dial",
			run: func(c *C) {
				c.subset("capability", c.describe().GetCapabilities(), "plan", "attach", "list", "inspect", "put", "get", "remove", "changes", "reset", "stop", "tty", "secrets", "dial", "fork")
			}},
		{ID: "describe/limits", Proves: "each limit is known, and named once", Fix: "list only timeout memory cpus pids disk files",
			run: func(c *C) {
				c.subset("limit", c.describe().GetLimits(), "timeout", "memory", "cpus", "pids", "disk", "files")
			}},
		{ID: "describe/modes", Proves: "workspace modes, network modes and formats are known and named once, and there is at least one network mode", Fix: "list only private shared readonly; none filtered full; tar file git-bundle",
			run: func(c *C) {
				d := c.describe()
				c.subset("workspace mode", d.GetWorkspaces(), "private", "shared", "readonly")
				c.subset("network mode", d.GetNetworks(), "none", "filtered", "full")
				c.subset("format", d.GetFormats(), "tar", "file", "git-bundle")
				if len(d.GetNetworks()) == 0 {
					c.Fatalf("no network mode is claimed, so that nothing can run")
				}
			}},
		{ID: "describe/formats-for-files", Proves: "a backend that takes or gives files says in what form", Fix: "list the formats that Put and Get speak",
			run: func(c *C) {
				if (c.facts.Has(sdk.CapPut) || c.facts.Has(sdk.CapGet)) && len(c.facts.Formats) == 0 {
					c.Fatalf("put or get is claimed, and no format")
				}
			}},
		{ID: "describe/environment", Proves: "the variables that the plugin wants to see have plain names", Fix: "name variables, not values, and no HUTCH_ or PLUGIN_ ones: those are the handshake's",
			run: func(c *C) {
				for _, e := range c.describe().GetEnvironment() {
					if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(e) || strings.HasPrefix(e, "HUTCH_") || strings.HasPrefix(e, "PLUGIN_") {
						c.Fatalf("it wants to see %q", e)
					}
				}
			}},
		{ID: "describe/schema-names", Proves: "each attribute and block of the schema has a name that HCL can write, once", Fix: "match ^[a-z][a-z0-9_]*$, and give no name to two things of one block",
			run: func(c *C) {
				c.eachSchema(func(path string, s sdk.Schema) {
					seen := map[string]bool{}
					name := func(n string) {
						if !regexp.MustCompile(`^[a-z][a-z0-9_]*$`).MatchString(n) || seen[n] {
							c.Fatalf("%q in %s is no name, or is there twice", n, path)
						}
						seen[n] = true
					}
					for _, a := range s.Attributes {
						name(a.Name)
					}
					for _, b := range s.Blocks {
						name(b.Name)
					}
				})
			}},
		{ID: "describe/schema-types", Proves: "each type of the schema is an HCL type constraint", Fix: "write string, number, bool, any, list(T), set(T), map(T), object({name = T, other = optional(T)}) or tuple([T])",
			run: func(c *C) {
				c.eachSchema(func(path string, s sdk.Schema) {
					for _, a := range s.Attributes {
						if err := checkType(a.Type); err != nil {
							c.Fatalf("the type %q of %s in %s: %v", a.Type, a.Name, path, err)
						}
					}
				})
			}},
		{ID: "describe/schema-docs", Proves: "each attribute and block is documented", Fix: "write a sentence with units and bounds into each doc",
			run: func(c *C) {
				c.eachSchema(func(path string, s sdk.Schema) {
					for _, a := range s.Attributes {
						if strings.TrimSpace(a.Doc) == "" {
							c.Fatalf("%s in %s has no doc", a.Name, path)
						}
					}
					for _, b := range s.Blocks {
						if strings.TrimSpace(b.Doc) == "" {
							c.Fatalf("the block %s in %s has no doc", b.Name, path)
						}
					}
				})
			}},
		{ID: "describe/schema-defaults", Proves: "each default is JSON, and nothing required has one", Fix: "drop the default or the required; write the default as JSON",
			run: func(c *C) {
				c.eachSchema(func(path string, s sdk.Schema) {
					for _, a := range s.Attributes {
						if a.Default != nil && (!json.Valid(a.Default) || a.Required) {
							c.Fatalf("%s in %s: required %v, default %s", a.Name, path, a.Required, a.Default)
						}
					}
				})
			}},
		{ID: "describe/schema-blocks", Proves: "each nested block has a nesting and bounds that can be met", Fix: "use single, list or map, with 0 <= min, and min <= max unless max is 0",
			run: func(c *C) {
				c.eachSchema(func(path string, s sdk.Schema) {
					for _, b := range s.Blocks {
						known := slices.Contains([]sdk.Nesting{sdk.NestingSingle, sdk.NestingList, sdk.NestingMap}, b.Nesting)
						if !known || b.Min < 0 || b.Max < 0 || b.Max > 0 && b.Min > b.Max {
							c.Fatalf("the block %s in %s: nesting %q, min %d, max %d", b.Name, path, b.Nesting, b.Min, b.Max)
						}
					}
				})
			}},
	}
}

func (c *C) describe() *pb.DescribeResponse {
	d, err := c.shared().rpc.Describe(c.ctx, &pb.DescribeRequest{HostVersion: "conformance suite"})
	if err != nil {
		c.Fatalf("describe: %v", err)
	}
	return d
}

// subset ends the check unless got holds only known words, each once.
func (c *C) subset(what string, got []string, known ...string) {
	seen := map[string]bool{}
	for _, g := range got {
		if !slices.Contains(known, g) {
			c.Fatalf("the %s %q is not one of %s", what, g, strings.Join(known, ", "))
		}
		if seen[g] {
			c.Fatalf("the %s %q is claimed twice", what, g)
		}
		seen[g] = true
	}
}

// eachSchema visits the schema and those of nested blocks.
func (c *C) eachSchema(visit func(path string, s sdk.Schema)) {
	var walk func(path string, s sdk.Schema)
	walk = func(path string, s sdk.Schema) {
		visit(path, s)
		for _, b := range s.Blocks {
			walk(path+"."+b.Name, b.Schema)
		}
	}
	walk("the block", c.facts.Schema)
}

// checkType parses an HCL type constraint.
func checkType(s string) error {
	p := typeParser{rest: s}
	if err := p.parse(false); err != nil {
		return err
	}
	if p.skip(); p.rest != "" {
		return fmt.Errorf("there is %q after the type", p.rest)
	}
	return nil
}

type typeParser struct{ rest string }

func (p *typeParser) skip() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

func (p *typeParser) take(tok string) bool {
	p.skip()
	var ok bool
	p.rest, ok = strings.CutPrefix(p.rest, tok)
	return ok
}

var wordAt = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*`) })

func (p *typeParser) word() string {
	p.skip()
	w := wordAt().FindString(p.rest)
	p.rest = p.rest[len(w):]
	return w
}

func (p *typeParser) parse(optional bool) error {
	w := p.word()
	switch w {
	case "string", "number", "bool", "any":
		return nil
	case "list", "set", "map", "optional", "tuple", "object":
	default:
		return fmt.Errorf("%q is no type", w)
	}
	if w == "optional" && !optional {
		return fmt.Errorf("optional can only stand in an object")
	}
	if !p.take("(") {
		return fmt.Errorf("%s needs its element types in parentheses", w)
	}
	var err error
	switch w {
	case "tuple":
		err = p.list("[", "]", func() error { return p.parse(false) })
	case "object":
		err = p.list("{", "}", func() error {
			if p.word() == "" || !(p.take("=") || p.take(":")) {
				return fmt.Errorf("an object's attributes are NAME = TYPE")
			}
			return p.parse(true)
		})
	default:
		err = p.parse(false)
	}
	if err == nil && !p.take(")") {
		err = fmt.Errorf("%s( is not closed", w)
	}
	return err
}

func (p *typeParser) list(open, end string, item func() error) error {
	if !p.take(open) {
		return fmt.Errorf("%q is missing", open)
	}
	for !p.take(end) {
		if err := item(); err != nil {
			return err
		}
		if !p.take(",") {
			if p.skip(); !strings.HasPrefix(p.rest, end) && !strings.Contains(p.rest, "\n") {
				return fmt.Errorf("%q is missing", end)
			}
		}
	}
	return nil
}

// sameStrings compares two lists.
func sameStrings(a, b []string) bool { return reflect.DeepEqual(a, b) }
