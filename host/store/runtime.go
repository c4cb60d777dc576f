package store

// RuntimeDir is a short, private directory (0700) for sockets and FIFOs, below $XDG_RUNTIME_DIR/hutch or in /tmp. It
// lives as long as the process that made it: a lock on it tells [Store.GC] whether that process is gone.
type RuntimeDir struct {
	path string
}

// NewRuntimeDir makes a fresh one. It needs no store.
func NewRuntimeDir() (*RuntimeDir, error) { return nil, errNotImplemented }

// Path is the absolute path, short enough for a socket with a name of up to 40 bytes in it.
func (d *RuntimeDir) Path() string { return d.path }

// Socket returns the path of a socket called name, or an error when it would be too long for the kernel.
func (d *RuntimeDir) Socket(name string) (string, error) { return "", errNotImplemented }

// Sub makes a private directory in it and returns its path.
func (d *RuntimeDir) Sub(name string) (string, error) { return "", errNotImplemented }

// Close removes the directory and all that is in it.
func (d *RuntimeDir) Close() error { return errNotImplemented }
