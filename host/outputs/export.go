package outputs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"unicode"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// Exporter copies collected outputs of several runs to one directory, each to a directory with the name of its run.
type Exporter struct {
	Dir  string
	used map[string]bool
}

// Export copies the listed files from a run's output directory. The directory of a run has its name, with a dash for
// each character that is no letter, digit, dot, dash or underscore, and a number where two runs would share one.
// Existing files are overwritten, others stay; nothing is written outside of Dir.
func (e *Exporter) Export(ctx context.Context, run, from string, list []Output) error {
	if len(list) == 0 {
		return nil
	}
	src, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer src.Close()
	root, err := os.OpenRoot(e.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	dir := e.name(run)
	for _, o := range list {
		if err := export(ctx, root, path.Join(dir, o.Path), src, o); err != nil {
			return fmt.Errorf("copy output %s of %s: %w", o.Path, run, err)
		}
	}
	return nil
}

func export(ctx context.Context, root *os.Root, to string, src *os.Root, o Output) error {
	if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = safefile.Copy(ctx, f, src, o.Path, o.Size)
	return errors.Join(err, f.Close())
}

// name is the directory of a run, which no other run has.
func (e *Exporter) name(run string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, run), "-")
	if strings.Trim(name, ".") == "" {
		name = "run"
	}
	if e.used == nil {
		e.used = map[string]bool{}
	}
	first := name
	for n := 2; e.used[name]; n++ {
		name = fmt.Sprintf("%s-%d", first, n)
	}
	e.used[name] = true
	return name
}
