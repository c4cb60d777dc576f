// Package mcp serves sandboxes to clients of the Model Context Protocol: a coding agent makes sandboxes, runs commands
// in them, works with their files, and shows what they changed.
//
// A client decides what happens inside of sandboxes, and nothing else. Which directories of this host a sandbox may be
// made on, which backend is used, which limits hold, whether there is a network, and whether anything may be brought
// back to a project are [Options] of the user who starts the server. A client sees the sandboxes that were made through
// this server and those that the options name, and no others.
//
// Answers are bounded and paged. What goes wrong in a tool is an answer marked as an error, in words for a model; it is
// never the end of the session. A command is a run with a record like any other.
package mcp
