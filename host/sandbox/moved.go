package sandbox

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hutch-run/hutch/host/store"
)

// moved returns the record of a sandbox, whose paths it corrects when the whole store was moved since. In a copy of a
// store it refuses: the sandbox's processes, container or machine belong to the original.
func (m *Manager) moved(rec *store.SandboxRecord) (store.SandboxInfo, error) {
	info, home := rec.Info(), m.store.Paths().Data
	if original := m.store.Original(info.Home, info.ID); original != "" {
		return info, fmt.Errorf("sandbox %q belongs to the store at %s, of which this one (%s) is a copy: work with it there; `hutch rm %s` removes the copy only", info.Name, original, home, info.Name)
	}
	if info.Home == home || info.Home == "" {
		return info, nil
	}
	err := rec.Update(func(i *store.SandboxInfo) {
		paths := []*string{&i.Workspace.Source}
		if l := i.Workspace.Layers; l != nil {
			copied := *l
			i.Workspace.Layers = &copied
			paths = append(paths, &copied.Lower, &copied.Upper)
		}
		i.Mounts = append([]string(nil), i.Mounts...)
		for k := range i.Mounts {
			paths = append(paths, &i.Mounts[k])
		}
		for _, p := range paths {
			if rest, ok := strings.CutPrefix(*p, info.Home+"/"); ok {
				*p = filepath.Join(home, rest)
			}
		}
		i.Home, i.Owner = home, m.store.Owner()
	})
	return rec.Info(), err
}
