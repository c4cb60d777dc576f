package main

import "testing"

// TestPortScripts reaches servers in and from real sandboxes of bwrap.
func TestPortScripts(t *testing.T) {
	requireTool(t, "bwrap", "--ro-bind", "/", "/", "--unshare-all", "true")
	requireTool(t, "python3", "--version")
	pushScripts(t, "bwrap", []string{"testdata/port/port.txtar", "testdata/port/observe.txtar"})
}
