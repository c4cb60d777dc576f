package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// A line of run.jsonl is the JSON of an [Info] with a hash spliced in before its last brace, as in an event. The hash
// covers the one of the line before, so the last one pins the whole file; the event chain says which hashes there were
// while the run went on, and the audit chain which was the last.

// encodeInfo returns the line of info after the line with the hash prev, newline included, and its hash.
func encodeInfo(prev string, info Info) (line []byte, hash string, err error) {
	body, err := json.Marshal(info)
	if err != nil {
		return nil, "", fmt.Errorf("write %s: %w", infoFile, err)
	}
	hash = infoHash(prev, body)
	return spliceHash(body, hash), hash, nil
}

func infoHash(prev string, body ...[]byte) string {
	h := sha256.New()
	h.Write([]byte(prev))
	for _, b := range body {
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// infoLines is what run.jsonl holds: the hashes of its lines, in order, and how many bytes follow the last whole one.
type infoLines struct {
	hashes []string
	torn   int
}

// readInfoLines checks that each line follows from the one before it.
func readInfoLines(b []byte) (l infoLines, err error) {
	prev := noPrev
	for n := 1; ; n++ {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			l.torn = len(b)
			return l, nil
		}
		body, hash, ok := cutHash(b[:i])
		switch {
		case !ok:
			return l, fmt.Errorf("line %d does not end with a hash", n)
		case hash != infoHash(prev, body, []byte{'}'}):
			return l, fmt.Errorf("line %d does not fit its hash", n)
		}
		l.hashes = append(l.hashes, hash)
		prev, b = hash, b[i+1:]
	}
}

// last is the hash of the last whole line.
func (l infoLines) last() string {
	if len(l.hashes) == 0 {
		return ""
	}
	return l.hashes[len(l.hashes)-1]
}
