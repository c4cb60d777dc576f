// Package overlay says what changed in a directory: by reading the upper layer of an overlay file system against its
// lower one, or, for a directory that is written in place, by comparing it with a snapshot taken before.
//
// A [Union] is the merged view of two layers without any mount, for reading and for writing.
//
// Everything it looks at may be hostile and may change while it is looked at. It opens names one at a time below
// descriptors it holds, never follows a symbolic link, reads no file that is not regular, and bounds entries and depth.
package overlay
