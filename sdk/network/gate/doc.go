// Package gate serves the listeners of a filtered network namespace (package netns) from outside of it: it answers
// lookups, accepts the command's connections, decides by the rules, and dials from this process's network.
//
// Each name that resolves has its own address in 198.18.0.0/15, so the address of a connection is the name that
// the command asked for. The real address is looked up when the connection is made, and is checked then: an address
// that is not public is reached only when a rule names it, whatever name leads there.
package gate
