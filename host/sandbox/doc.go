// Package sandbox manages sandboxes that outlive a command: it makes them, finds them again by name, runs commands in
// them, resets and removes them.
//
// A persistent sandbox has a record in the store. Every process that works in it starts the backend, attaches by the
// record's handle, and leaves; nothing of hutch keeps running between two commands. Several processes may work in one
// sandbox at once: they hold its lock shared. The process that recreates or removes it holds the lock alone.
package sandbox
