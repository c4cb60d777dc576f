package ui

import (
	"bytes"
	"html/template"

	terminal "github.com/buildkite/terminal-to-html/v3"

	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
)

// readStream renders the end of a log; false where nothing was written.
func readStream(rec *store.Record, name store.Stream) (s stream, ok bool) {
	most := int64(maxOutput)
	if rec.State == store.StateRunning {
		most = maxLive
	}
	log, err := rec.OpenLog(name)
	if err != nil {
		return s, false
	}
	defer log.Close()
	total, _, err := log.Counts()
	if err != nil || total == 0 || log.TailBytes(most) != nil {
		return s, false
	}
	b := &bounded{most: int(most)}
	_, _ = log.WriteTo(b)
	return stream{string(name), output(b.b), total - int64(len(b.b)), total}, true
}

// output renders what a program wrote, which is hostile, as HTML. Of its sequences only those of colours get through,
// so there are no links, pictures or movements of the cursor, and control characters are shown.
func output(b []byte) template.HTML {
	var safe bytes.Buffer
	w := termsafe.NewWriter(&safe)
	_, _ = w.Write(b)
	_ = w.Close()
	return template.HTML(terminal.Render(safe.Bytes()))
}

// bounded keeps the first bytes that are written to it.
type bounded struct {
	b    []byte
	most int
}

// Write implements io.Writer.
func (w *bounded) Write(p []byte) (int, error) {
	w.b = append(w.b, p[:min(len(p), w.most-len(w.b))]...)
	return len(p), nil
}
