package runfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/units"
)

// definitionJSON is the stable JSON form of a Definition. What was not said is left out.
type definitionJSON struct {
	Run              string            `json:"run"`
	Key              string            `json:"key,omitempty"`
	Instance         string            `json:"instance"`
	Parent           string            `json:"parent,omitempty"`
	File             string            `json:"file,omitempty"`
	Dir              string            `json:"dir,omitempty"`
	Description      string            `json:"description,omitempty"`
	Range            *diag.Range       `json:"range,omitempty"`
	RequiredBackends []requiredJSON    `json:"required_backends,omitempty"`
	Backends         []string          `json:"backends,omitempty"`
	MinIsolation     string            `json:"min_isolation,omitempty"`
	Files            []fileJSON        `json:"files,omitempty"`
	Home             []homeJSON        `json:"home,omitempty"`
	Language         string            `json:"language,omitempty"`
	Interpreter      []string          `json:"interpreter,omitempty"`
	Entrypoint       string            `json:"entrypoint,omitempty"`
	EntrypointIn     Place             `json:"entrypoint_in,omitempty"`
	Command          []string          `json:"command,omitempty"`
	Args             []string          `json:"args,omitempty"`
	Env              map[string]string `json:"env,omitempty"`
	EnvGiven         map[string]bool   `json:"env_given,omitempty"` // as origin.given
	Dependencies     []string          `json:"dependencies,omitempty"`
	Workdir          string            `json:"workdir,omitempty"`
	Stdin            *string           `json:"stdin,omitempty"`
	Workspace        *workspaceJSON    `json:"workspace,omitempty"`
	Mounts           []Mount           `json:"mounts,omitempty"`
	Limits           Limits            `json:"limits,omitzero"`
	Network          network.Network   `json:"network"`
	Outputs          []string          `json:"outputs,omitempty"`
	Expect           *expectJSON       `json:"expect,omitempty"`
}

type requiredJSON struct {
	Name    string `json:"name"`
	Source  string `json:"source,omitempty"`
	Version string `json:"version,omitempty"`
}

type fileJSON struct {
	Path      string `json:"path"`
	Mode      string `json:"mode"`
	Size      *int64 `json:"size,omitempty"` // not said of a secret
	Source    string `json:"source,omitempty"`
	Sensitive bool   `json:"sensitive,omitempty"`
}

type homeJSON struct {
	Path      string `json:"path"`
	Source    string `json:"source,omitempty"`
	Mode      string `json:"mode,omitempty"`   // of content
	SHA256    string `json:"sha256,omitempty"` // of content; not said of a secret
	Sensitive bool   `json:"sensitive,omitempty"`
}

type workspaceJSON struct {
	Source  string `json:"source"`
	Project string `json:"project,omitempty"`
	Mode    string `json:"mode"`
}

type expectJSON struct {
	ExitCodes []int          `json:"exit_codes,omitempty"`
	Causes    []string       `json:"causes,omitempty"`
	Stdout    *streamJSON    `json:"stdout,omitempty"`
	Stderr    *streamJSON    `json:"stderr,omitempty"`
	Outputs   []string       `json:"outputs,omitempty"`
	Within    units.Duration `json:"within,omitzero"`
}

type streamJSON struct {
	Equals   *string  `json:"equals,omitempty"`
	Empty    *bool    `json:"empty,omitempty"`
	Contains []string `json:"contains,omitempty"`
	Excludes []string `json:"excludes,omitempty"`
	Matches  []string `json:"matches,omitempty"`
}

// MarshalJSON renders the definition with every sensitive value replaced by "(sensitive)": fit to be stored and
// printed. The contents of files and the bodies of backend blocks are not in it.
func (d *Definition) MarshalJSON() ([]byte, error) {
	j := definitionJSON{
		Run: d.Name, Key: d.Key, Instance: d.Instance, Parent: d.Parent, File: d.File, Dir: d.Dir, Description: d.Description, MinIsolation: d.MinIsolation,
		Language: d.Language, Interpreter: d.Interpreter, Entrypoint: d.Entrypoint, EntrypointIn: d.EntrypointIn,
		Command: d.shown("command", d.Command), Args: d.shown("args", d.Args), Dependencies: d.shown("dependencies", d.Dependencies),
		Workdir: d.Workdir, Stdin: d.shownText("stdin", d.Stdin), Mounts: d.Mounts, Limits: d.Limits, Network: d.Network.OrNone(), Outputs: d.Outputs,
	}
	if r, ok := d.RangeOf(""); ok {
		j.Range = &r
	}
	for _, r := range d.RequiredBackends {
		j.RequiredBackends = append(j.RequiredBackends, requiredJSON{r.Name, r.Source, r.Version})
	}
	for _, b := range d.Backends {
		j.Backends = append(j.Backends, b.Name)
	}
	for _, f := range d.Files {
		fj := fileJSON{Path: f.Path, Mode: modeText(f.Mode), Source: f.Source, Sensitive: f.Sensitive}
		if !f.Sensitive {
			fj.Size = &f.Size
		}
		j.Files = append(j.Files, fj)
	}
	for _, h := range d.Home {
		hj := homeJSON{Path: h.Path, Source: h.Source, Sensitive: h.Sensitive}
		if h.Source == "" {
			hj.Mode = modeText(h.Mode)
		}
		if h.Source == "" && !h.Sensitive {
			hj.SHA256 = fmt.Sprintf("%x", sha256.Sum256(h.Content))
		}
		j.Home = append(j.Home, hj)
	}
	if len(d.Env) > 0 {
		j.Env = make(map[string]string, len(d.Env))
		for k, v := range d.Env {
			if d.origin.isSecret(member("env", k)) {
				v = Redacted
			}
			j.Env[k] = v
		}
	}
	if d.origin != nil {
		j.EnvGiven = d.origin.given
	}
	if w := d.Workspace; w != nil {
		j.Workspace = &workspaceJSON{w.Source, w.Project, w.Mode}
	}
	if e := d.Expect; e != nil {
		j.Expect = &expectJSON{ExitCodes: e.ExitCodes, Causes: e.Causes, Outputs: e.Outputs, Within: e.Within,
			Stdout: d.shownStream("expect.stdout", e.Stdout), Stderr: d.shownStream("expect.stderr", e.Stderr)}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(j); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(buf.Bytes()), nil
}

func modeText(m fs.FileMode) string { return fmt.Sprintf("%04o", m.Perm()) }

// shown is a list with its secrets replaced.
func (d *Definition) shown(path string, list []string) []string {
	if d.origin == nil || len(d.origin.paths) == 0 {
		return list
	}
	out := make([]string, len(list))
	for i, s := range list {
		if d.origin.isSecret(element(path, i)) {
			s = Redacted
		}
		out[i] = s
	}
	return out
}

func (d *Definition) shownText(path string, s *string) *string {
	if s != nil && d.origin.isSecret(path) {
		text := Redacted
		return &text
	}
	return s
}

func (d *Definition) shownStream(path string, e *ExpectStream) *streamJSON {
	if e == nil {
		return nil
	}
	j := &streamJSON{Equals: d.shownText(path+".equals", e.Equals), Empty: e.Empty,
		Contains: d.shown(path+".contains", e.Contains), Excludes: d.shown(path+".excludes", e.Excludes)}
	for i, re := range e.Matches {
		text := strings.TrimPrefix(re.String(), "(?m)")
		if d.origin.isSecret(element(path+".matches", i)) {
			text = Redacted
		}
		j.Matches = append(j.Matches, text)
	}
	return j
}
