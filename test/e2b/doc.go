// Package e2b tests the whole program with the e2b backend, against the local server that speaks as E2B does.
package e2b
