// Package scaffold writes the project of a new backend: `hutch backend new`.
package scaffold

import "errors"

// Options say what project to write.
type Options struct {
	Name    string // of the backend: [a-z][a-z0-9-]*, at most 32 characters
	Module  string // Go module path; "" makes example.com/hutch-backend-NAME
	Dir     string // where to; "" makes hutch-backend-NAME below the working directory. It must be missing or empty
	Version string // of hutch, for go.mod: v1.2.3
	Replace string // directory of hutch's own source, for work on hutch itself; "" for none
}

// New writes the project and returns the paths of its files, relative to the
// directory, which is made when missing. It writes nothing when it returns an error
// about its options.
func New(o Options) ([]string, error) { return nil, errors.New("not implemented") }
