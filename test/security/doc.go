// Package security runs the catalogue of attacks against hutch as its users run
// it: the hutch command, a real backend, and a hostile payload (package probe).
//
// Each case runs through `hutch run` on bwrap, as root and as an ordinary user,
// and a second time without any sandbox: the control, which shows that the
// attack gets through where nothing stops it, so that a case which cannot fail
// does not count as passed.
package security
