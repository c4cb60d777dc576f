package outputs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Exporter copies collected outputs of several runs to one directory, each to a directory with the name of its run.
type Exporter struct {
	root *os.Root
	at   string // its path without links
	used map[string]bool
}

// NewExporter makes the directory dir unless it exists, and holds it open until Close: a program with a shared
// workspace may put a link in its place meanwhile.
func NewExporter(dir string) (*Exporter, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	at, err := filepath.Abs(dir)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, err
	}
	return &Exporter{root: root, at: at}, nil
}

// Close closes the directory.
func (e *Exporter) Close() error { return e.root.Close() }

// Export copies the listed files from a run's output directory, or none of them where [judge.Copied] refuses one. The
// directory of a run has its name, with a dash for each character that is no letter, digit, dot, dash or underscore,
// and a number where two runs would share one. Existing files and links are replaced, other files stay; no link to a
// directory is followed.
func (e *Exporter) Export(ctx context.Context, run, from string, list []Output) error {
	if len(list) == 0 {
		return nil
	}
	src, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer src.Close()
	name := e.name(run)
	dir, err := safefile.MkdirAll(e.root, name, 0o755)
	if err != nil {
		return fmt.Errorf("copy outputs of %s: %w", run, err)
	}
	defer dir.Close()
	if err := judge.RefuseCopy(src, filepath.Join(e.at, name), nil); err != nil {
		return fmt.Errorf("outputs of %s stay in %s: %w", run, from, err)
	}
	for _, o := range list {
		if err := export(ctx, dir, src, o); err != nil {
			return fmt.Errorf("copy output %s of %s: %w", o.Path, run, err)
		}
	}
	return nil
}

// export writes a new file and renames it, because a FIFO or link may stand where it goes.
func export(ctx context.Context, to, src *os.Root, o Output) error {
	dir, err := safefile.MkdirAll(to, path.Dir(o.Path), 0o755)
	if err != nil {
		return err
	}
	defer dir.Close()
	temp := ".hutch-" + rand.Text()
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = safefile.Copy(ctx, f, src, o.Path, o.Size)
	if err = errors.Join(err, f.Close()); err == nil {
		err = dir.Rename(temp, path.Base(o.Path))
	}
	if err != nil {
		_ = dir.Remove(temp)
	}
	return err
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
