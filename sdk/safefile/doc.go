// Package safefile reads files that somebody hostile made, without following, hanging or filling up.
//
// A file is named below an [os.Root]. No component of the name may be a symbolic link, not even one that stays inside.
// It is opened without blocking and without following, and must then be a regular file, with one link, within the size
// allowed; whatever else stands there (FIFO, device, socket, hard link, sparse giant) is an [Error] that names the path
// and the [Reason]. Memory is bounded by the caps.
package safefile
