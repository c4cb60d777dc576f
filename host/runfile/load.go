package runfile

import (
	"errors"

	"github.com/hutch-run/hutch/host/diag"
)

// Options is what a call brings along besides the files. The zero value is ready to use.
type Options struct {
	// Vars are NAME=VALUE settings, the last one of a name wins. They are stronger than VarFiles, those than
	// *.auto.hutchvars.hcl and *.auto.hutchvars.json beside the run file, those than HUTCH_VAR_name, those than
	// the default.
	Vars []string
	// VarFiles are files of NAME = VALUE lines, or JSON objects when their name ends in .json; later ones win.
	VarFiles []string
	// Environ holds NAME=VALUE strings for HUTCH_VAR_name and env(); nil means the environment of the process.
	Environ []string
	// Languages are the names that language may have; nil accepts any.
	Languages []string
	// AllowMissing takes variables without a value as unknown instead of refusing the file, and leaves out the
	// checks that would need them: for validate. What it returns may be incomplete and must not be run.
	AllowMissing bool
}

// Load reads, evaluates and checks run files. Every file stands for itself: its variables, locals and paths are its
// own; a variable that is set by Vars or VarFiles must be declared by at least one of them. The Config is never nil,
// and is complete when the diagnostics hold no error.
func Load(paths []string, o Options) (*Config, diag.Diagnostics) {
	return &Config{}, diag.Diagnostics{diag.Errorf("not implemented")}
}

// Format returns the canonical layout of a run file. A file with a syntax error is not touched: src comes back as it
// is, with the diagnostics.
func Format(name string, src []byte) ([]byte, diag.Diagnostics) {
	return src, diag.Diagnostics{diag.Errorf("not implemented")}
}

// FindRunFiles lists the *.hcl files below dir in lexical order, without entering hidden directories or symbolic links.
func FindRunFiles(dir string) ([]string, error) { return nil, errors.New("not implemented") }
