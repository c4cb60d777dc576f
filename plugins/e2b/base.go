package main

import (
	"encoding/json"
	"fmt"
)

// base is what the workspace was when no command had run yet.
type base struct {
	Archive string           // hash of what was sent; "" when nothing was
	Entries map[string]entry // of the workspace, by path
}

// savedBase is a base as it lies on the host's disk. Paths and targets are bytes: JSON's texts take Unicode only.
type savedBase struct {
	Archive string       `json:"archive,omitempty"`
	Entries []savedEntry `json:"entries"`
}

type savedEntry struct {
	Path []byte `json:"path"`
	Link []byte `json:"link,omitempty"`
	entry
}

// MarshalJSON implements [json.Marshaler].
func (b *base) MarshalJSON() ([]byte, error) {
	out := savedBase{Archive: b.Archive, Entries: []savedEntry{}}
	for name, e := range b.Entries {
		out.Entries = append(out.Entries, savedEntry{[]byte(name), []byte(e.Link), e})
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (b *base) UnmarshalJSON(data []byte) error {
	var in savedBase
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	b.Archive, b.Entries = in.Archive, make(map[string]entry, len(in.Entries))
	for _, e := range in.Entries {
		if !isBelow(string(e.Path)) {
			return fmt.Errorf("the path %q is not in the workspace", e.Path)
		}
		e.entry.Link = string(e.Link)
		b.Entries[string(e.Path)] = e.entry
	}
	return nil
}
