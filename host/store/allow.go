package store

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// AllowFile is the file in the directory of a run that has what a person allows its command besides, while that runs: a
// rule of a network a line. Who runs the command takes a rule from it only if the command was denied what it allows.
func AllowFile(dir string) string { return dir + "/allow" }

// Allow has the command of a run reach what it was denied, until it ends. It may take effect a moment later.
func (r *Record) Allow(rule string) error {
	if r.State != StateRunning {
		return fmt.Errorf("run %s is not running: it is %s", r.ID, r.State)
	}
	if strings.ContainsAny(rule, "\n\x00") {
		return fmt.Errorf("invalid rule %q", rule)
	}
	f, err := os.OpenFile(AllowFile(r.Dir), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(rule + "\n")
	return errors.Join(err, f.Close())
}
