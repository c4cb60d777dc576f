package backendtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

func exchangeChecks() []Check {
	const fix = "Ready.Exchange names one directory of this sandbox by its two paths, or is nil"
	// of returns the exchange of a sandbox, having looked at what it says.
	of := func(b *box) *sdk.Exchange {
		e := b.Ready().Exchange
		if e == nil {
			b.c.skipf("the backend reports no exchange")
		}
		if fi, err := os.Lstat(e.Host); !filepath.IsAbs(e.Host) || err != nil || !fi.IsDir() {
			b.c.Fatalf("the exchange %q is no absolute path of a directory on this host (%v)", e.Host, err)
		}
		if !strings.HasPrefix(e.Guest, "/") {
			b.c.Fatalf("the exchange %q is no absolute path for a command", e.Guest)
		}
		return e
	}
	// names are what the host sees in the exchange, what a backend keeps there for itself left out.
	names := func(c *C, e *sdk.Exchange, before []string) []string {
		list, err := os.ReadDir(e.Host)
		if err != nil {
			c.Fatalf("%v", err)
		}
		var out []string
		for _, f := range list {
			if !slices.Contains(before, f.Name()) {
				out = append(out, f.Name())
			}
		}
		return out
	}
	at := func(e *sdk.Exchange) map[string]string { return map[string]string{"X": e.Guest} }
	return []Check{
		{ID: "exchange/in", Proves: "a command reads what the host has put into the exchange, and sees that it is removed", Fix: fix,
			run: func(c *C) {
				b := c.used()
				e := of(b)
				c.write(filepath.Join(e.Host, "in.part"), "from the host\n", 0o644)
				if err := os.Rename(filepath.Join(e.Host, "in.part"), filepath.Join(e.Host, "in")); err != nil {
					c.Fatalf("%v", err)
				}
				c.eq("what a command reads", b.must(`cat "$X/in"`, env(at(e))), "from the host\n")
				if err := os.Remove(filepath.Join(e.Host, "in")); err != nil {
					c.Fatalf("%v", err)
				}
				c.eq("what is left of it", b.must(`test -e "$X/in" && echo there; echo`, env(at(e))), "\n")
			}},
		{ID: "exchange/out", Proves: "the host finds what a command has renamed in the exchange whole, and can remove it", Fix: fix,
			run: func(c *C) {
				b := c.used()
				e := of(b)
				before := names(c, e, nil)
				b.must(`head -c 1000000 /dev/zero > "$X/out.part" && printf 'the end' >> "$X/out.part" && mv "$X/out.part" "$X/out"`, env(at(e)))
				c.eq("the names in the exchange", strings.Join(names(c, e, before), " "), "out")
				got := c.read(filepath.Join(e.Host, "out"))
				if len(got) != 1_000_007 || !strings.HasSuffix(got, "\x00the end") {
					c.Fatalf("the host read %d bytes of the 1000007 that a command wrote", len(got))
				}
				if err := os.Remove(filepath.Join(e.Host, "out")); err != nil {
					c.Fatalf("the host cannot remove what a command made: %v", err)
				}
			}},
		{ID: "exchange/own", Proves: "each sandbox has an exchange of its own", Fix: fix,
			run: func(c *C) {
				a, b := c.used(), c.used()
				first, second := of(a), of(b)
				if first.Host == second.Host {
					c.Fatalf("two sandboxes have the exchange %s", first.Host)
				}
				a.must(`echo mine > "$X/mine"`, env(at(first)))
				c.eq("what the other one sees", b.must(`test -e "$X/mine" && echo there; echo`, env(at(second))), "\n")
				a.must(`rm "$X/mine"`, env(at(first)))
			}},
		{ID: "exchange/attach", Needs: []Need{needCap(sdk.CapAttach)}, Proves: "another process that attaches to the sandbox gets the same exchange", Fix: "fill in Ready.Exchange in Attach as in Create",
			run: func(c *C) {
				of(c.used()) // or skip
				b := c.box(func(r *sdk.CreateRequest) { r.Keep = true })
				e := of(b)
				other, err := c.fresh(StartOptions{}).Attach(c.ctx, b.Handle())
				if err != nil {
					c.Fatalf("attaching: %v", err)
				}
				if got := other.Ready().Exchange; got == nil || *got != *e {
					c.Fatalf("Create reported the exchange %+v, Attach reports %+v", e, got)
				}
			}},
		{ID: "exchange/destroy", Proves: "nothing is left of the exchange of a sandbox that was destroyed", Fix: "remove it in Destroy",
			run: func(c *C) {
				of(c.used()) // or skip
				b := c.box()
				e := of(b)
				b.must(`echo x > "$X/left"`, env(at(e)))
				c.destroy(b)
				if _, err := os.Lstat(e.Host); !os.IsNotExist(err) {
					c.Fatalf("%s is still there (%v)", e.Host, err)
				}
			}},
	}
}
