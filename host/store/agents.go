package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// AgentHome is what a coding agent keeps of one project beside its sandbox: login, settings and history.
type AgentHome struct {
	Name    string // of the agent's sandbox too
	Agent   string
	Project string // absolute host directory
	Dir     string // absolute host directory: the agent's home
}

const agentProject = "project" // in the directory of an AgentHome: agent and project, a line each

// AgentHome returns the home of an agent for a project, and makes it when it is not there. It is the user's alone.
func (s *Store) AgentHome(agent, project string) (*AgentHome, error) {
	base := agent + "-" + strings.Trim(unusual.ReplaceAllString(strings.ToLower(filepath.Base(project)), "-"), "-")
	base = strings.Trim(base[:min(len(base), 40)], "-")
	for n := 1; n < 1000; n++ {
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		h, err := s.agentHome(name)
		switch {
		case err == nil && (h.Agent != agent || h.Project != project):
			continue
		case err == nil:
			return h, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		if _, err := s.FindSandbox(name); err == nil { // of somebody else
			continue
		}
		h = &AgentHome{Name: name, Agent: agent, Project: project, Dir: s.agentDir(name)}
		if err := os.MkdirAll(h.Dir, 0o700); err != nil {
			return nil, err
		}
		return h, writeAtomic(filepath.Join(filepath.Dir(h.Dir), agentProject), []byte(agent+"\n"+project+"\n"), true)
	}
	return nil, fmt.Errorf("there are too many homes of agents like %s", base)
}

var unusual = regexp.MustCompile(`[^a-z0-9]+`)

func (s *Store) agentDir(name string) string { return filepath.Join(s.paths.Agents(), name, "home") }

func (s *Store) agentHome(name string) (*AgentHome, error) {
	data, err := os.ReadFile(filepath.Join(s.paths.Agents(), name, agentProject))
	if err != nil {
		return nil, err
	}
	agent, project, _ := strings.Cut(strings.TrimSuffix(string(data), "\n"), "\n")
	return &AgentHome{Name: name, Agent: agent, Project: project, Dir: s.agentDir(name)}, nil
}

// AgentHomes lists all homes of agents by name.
func (s *Store) AgentHomes() (out []AgentHome, err error) {
	entries, err := entriesOf(s.paths.Agents())
	for _, e := range entries {
		if h, err := s.agentHome(e.Name()); err == nil {
			out = append(out, *h)
		}
	}
	return out, err
}

// Remove removes the home with all that is in it.
func (h *AgentHome) Remove() error { return os.RemoveAll(filepath.Dir(h.Dir)) }
