// Package runfile turns run files into checked Go values, with diagnostics that point at the exact expression.
//
// Load reads, evaluates and checks; what it returns needs no HCL knowledge. Only the body of a backend block stays
// undecoded, because only the backend knows its schema: Backend.Decode checks it once the schema is there, and
// Backend.Locate maps what the backend says about a path back to the expression.
//
// A run file is not trusted with the machine. Files are read through an os.Root at the run file's own directory, only
// regular ones, and up to a size; reading, nesting, iteration and the size of values are bounded, so that a hostile
// file is an error after a moment and not a machine without memory.
//
// Values marked as sensitive stay marked through every expression. A Definition knows which of its values they are:
// its JSON form holds none of them, and Secrets lists them for callers that have to keep them out of other text.
//
// Start reading at Load. block.go reads the arguments of a block, and each kind of block has a file. Limits is the one
// table of limits.
package runfile
