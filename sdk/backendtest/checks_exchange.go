package backendtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

// exchange is the one that the backend reports, and the variable X that names it to commands. Without one the check
// does not apply.
func (b *box) exchange() (*sdk.Exchange, opt) {
	e := b.Ready().Exchange
	if e == nil {
		b.skipf("the backend reports no exchange")
	}
	b.wantHostDir("the exchange", e.Host)
	if !strings.HasPrefix(e.Guest, "/") {
		b.Fatalf("the exchange %q is no absolute path for a command", e.Guest)
	}
	return e, env("X", e.Guest)
}

func exchangeChecks() []Check {
	// absent is a script that says whether a name is in the exchange.
	absent := func(name string) string { return `test -e "$X/` + name + `" && echo there; echo` }
	return []Check{
		row("exchange/in", "a command reads what the host has put into the exchange, and sees that it is removed",
			"Ready.Exchange names one directory of this sandbox by its two paths, or is nil", used(func(b *box) {
				e, x := b.exchange()
				b.write(filepath.Join(e.Host, "in.part"), "from the host\n", 0o644)
				b.own(os.Rename(filepath.Join(e.Host, "in.part"), filepath.Join(e.Host, "in")))
				b.prints("from the host\n", `cat "$X/in"`, x)
				b.own(os.Remove(filepath.Join(e.Host, "in")))
				b.prints("\n", absent("in"), x)
			})),
		row("exchange/out", "the host finds what a command has renamed in the exchange whole, and can remove it",
			"Ready.Exchange names one directory of this sandbox by its two paths, or is nil", used(func(b *box) {
				e, x := b.exchange()
				before := names(e.Host)
				b.must(`cd "$X" && head -c 1000000 /dev/zero > out.part && printf 'the end' >> out.part && mv out.part out`, x)
				// What a backend keeps there for itself is left out.
				now := slices.DeleteFunc(names(e.Host), func(name string) bool { return slices.Contains(before, name) })
				b.eq("the names in the exchange", strings.Join(now, " "), "out")
				got := b.read(filepath.Join(e.Host, "out"))
				if len(got) != 1_000_007 || !strings.HasSuffix(got, "\x00the end") {
					b.Fatalf("the host read %d bytes of the 1000007 that a command wrote", len(got))
				}
				b.ok("the host cannot remove what a command made", os.Remove(filepath.Join(e.Host, "out")))
			})),
		row("exchange/own", "each sandbox has an exchange of its own",
			"Ready.Exchange names one directory of this sandbox by its two paths, or is nil", func(c *C) {
				a, b := c.used(), c.used()
				first, x := a.exchange()
				second, y := b.exchange()
				if first.Host == second.Host {
					c.Fatalf("two sandboxes have the exchange %s", first.Host)
				}
				a.must(`echo mine > "$X/mine"`, x)
				b.prints("\n", absent("mine"), y)
				a.must(`rm "$X/mine"`, x)
			}),
		row("exchange/attach", "another process that attaches to the sandbox gets the same exchange",
			"fill in Ready.Exchange in Attach as in Create", func(c *C) {
				c.used().exchange() // or skip
				b := c.box(keep)
				e, _ := b.exchange()
				if got := b.elsewhere().Ready().Exchange; got == nil || *got != *e {
					c.Fatalf("Create reported the exchange %+v, Attach reports %+v", e, got)
				}
			}, needAttach),
		row("exchange/destroy", "nothing is left of the exchange of a sandbox that was destroyed",
			"remove it in Destroy", func(c *C) {
				c.used().exchange() // or skip
				b := c.box()
				e, x := b.exchange()
				b.must(`echo x > "$X/left"`, x)
				b.destroy()
				if _, err := os.Lstat(e.Host); !os.IsNotExist(err) {
					c.Fatalf("%s is still there (%v)", e.Host, err)
				}
			}),
	}
}
