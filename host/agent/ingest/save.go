package ingest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
)

// What Save writes.
const (
	CodeDir    = "code"    // the files, below it
	RunFile    = "run.hcl" // beside it
	AnswerFile = "answer"  // what was taken in, as it came
)

// Run is the run that an answer becomes.
type Run struct {
	Name    string // of the run; see [RunName]
	Program Program
	Backend string // "" takes bwrap
	Network network.Network
	Limits  runfile.Limits
}

// RunName makes the name of a run from that of a file.
func RunName(file string) string {
	base := filepath.Base(file)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, base)
	if name = strings.Trim(name, "-._"); len(name) > 64 {
		name = name[:64]
	}
	if name == "" {
		return "ingested"
	}
	return name
}

// Save writes the files of an answer below dir/code, the run file beside it, and the answer itself. dir must be missing
// or empty; it is there with all of it, or as it was before. It returns the path of the run file. What [judge.Copied]
// refuses and allow does not allow is a *[judge.RefusedError].
func Save(dir string, a *Answer, r Run, answer []byte, allow map[judge.Rule]bool) (string, error) {
	text, err := r.hcl(a)
	if err != nil {
		return "", err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", fmt.Errorf("%s is not empty, and the code goes to a directory that is missing or empty", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var changes []judge.Change
	for _, f := range a.Files {
		changes = append(changes, judge.Change{Path: f.Path, New: judge.Node{There: true, Mode: f.Mode}})
	}
	if err := judge.Refuse(changes, nil, "", allow, judge.Copied...); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".hutch-ingest-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp) // nothing is there any more once it has its name
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return "", err
	}
	defer root.Close()
	write := func(name string, mode fs.FileMode, content []byte) error {
		return errors.Join(root.MkdirAll(path.Dir(name), 0o755), root.WriteFile(name, content, mode))
	}
	for _, f := range a.Files {
		if err := write(path.Join(CodeDir, f.Path), f.Mode, f.Content); err != nil {
			return "", err
		}
	}
	if err := errors.Join(write(RunFile, 0o644, text), write(AnswerFile, 0o644, answer), root.Chmod(".", 0o755)); err != nil {
		return "", err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // only an empty directory can be removed
		return "", err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, RunFile), nil
}

// texts is a list of strings, which is not empty.
func texts(l []string) cty.Value {
	var list []cty.Value
	for _, s := range l {
		list = append(list, cty.StringVal(s))
	}
	return cty.ListVal(list)
}

// hcl is the run file.
func (r Run) hcl(a *Answer) ([]byte, error) {
	file := hclwrite.NewEmptyFile()
	body := file.Body().AppendNewBlock("run", []string{r.Name}).Body()
	set := func(name, value string) {
		if value != "" {
			body.SetAttributeValue(name, cty.StringVal(value))
		}
	}
	set("entrypoint", r.Program.Entrypoint)
	set("language", r.Program.Language)
	if len(r.Program.Dependencies) > 0 {
		body.SetAttributeValue("dependencies", texts(r.Program.Dependencies))
	}
	backend := r.Backend
	if backend == "" {
		backend = "bwrap"
	}
	body.AppendNewline()
	body.AppendNewBlock("backend", []string{backend})
	body.AppendNewline()
	body.AppendNewBlock("files", nil).Body().SetAttributeValue("source", cty.StringVal(CodeDir))
	if n := r.Network; n.Mode != "" {
		body.AppendNewline()
		block := body.AppendNewBlock("network", nil).Body()
		if n.Mode == sdk.NetworkFiltered {
			block.SetAttributeValue("allow", texts(n.Allow))
		} else {
			block.SetAttributeValue("mode", cty.StringVal(string(n.Mode)))
		}
	}
	if l := r.Limits; l != (runfile.Limits{}) {
		body.AppendNewline()
		limits := body.AppendNewBlock("limits", nil).Body()
		for _, limit := range runfile.AllLimits {
			text := limit.Text(l)
			if text == "" {
				continue
			}
			value, err := cty.ParseNumberVal(text)
			if err != nil {
				value = cty.StringVal(text)
			}
			limits.SetAttributeValue(string(limit.Name), value)
		}
	}
	out, diags := runfile.Format(RunFile, file.Bytes())
	if diags.HasErrors() {
		return nil, diags.Err()
	}
	return append(fmt.Appendf(nil, "# Made by hutch ingest; the answer was in the format %s.\n", a.Format), out...), nil
}
