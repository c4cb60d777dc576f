// Package instructions holds the texts that hutch gives to coding agents inside a sandbox.
package instructions

import _ "embed"

// Name is how the file with [ExecutingPlans] is called.
const Name = "executing-plans-in-sandbox.md"

// ExecutingPlans instructs a coding agent how to work a plan through in a sandbox of `hutch push`, and how to hand in
// what it did.
//
//go:embed executing-plans-in-sandbox.md
var ExecutingPlans []byte
