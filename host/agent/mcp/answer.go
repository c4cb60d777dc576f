package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// progressEvery is how often a client hears that a call is still going on.
var progressEvery = 5 * time.Second

// progress notifies a client that asked for it, until the returned function is called.
func progress(ctx context.Context, q *mcp.CallToolRequest) (stop func()) {
	token := q.Params.GetProgressToken()
	if token == nil || q.Session == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		start, tick := time.Now(), time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			took := time.Since(start)
			_ = q.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // one that is lost does no harm
				ProgressToken: token, Progress: took.Seconds(), Message: fmt.Sprintf("%s: %s so far", q.Params.Name,
					took.Round(time.Second)),
			})
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// plain is an answer as text beside the structured one, for a model: names and values in lines, and texts of several
// lines as they are.
func plain(answer json.RawMessage) *mcp.CallToolResult {
	d := json.NewDecoder(bytes.NewReader(answer))
	d.UseNumber()
	var b strings.Builder
	write(&b, d, "")
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.TrimSuffix(b.String(), "\n")}}}
}

// write writes the next value of d in lines that begin with indent. The JSON is this program's own.
func write(b *strings.Builder, d *json.Decoder, indent string) {
	t, err := d.Token()
	if err != nil {
		return
	}
	switch t {
	case json.Delim('{'):
		for d.More() {
			name, _ := d.Token()
			fmt.Fprintf(b, "%s%s:", indent, name)
			if !member(b, d, indent) {
				return
			}
		}
		_, _ = d.Token()
	case json.Delim('['):
		for d.More() {
			b.WriteString(indent + "-")
			if !member(b, d, indent) {
				return
			}
		}
		_, _ = d.Token()
	case nil:
		b.WriteString(indent + "null\n")
	default:
		fmt.Fprintf(b, "%s%v\n", indent, t)
	}
}

// member writes what follows a name or a dash: on the same line where it is short.
func member(b *strings.Builder, d *json.Decoder, indent string) bool {
	var v json.RawMessage
	if d.Decode(&v) != nil {
		return false
	}
	var text string
	inner := json.NewDecoder(bytes.NewReader(v))
	inner.UseNumber()
	switch {
	case v[0] == '{' || v[0] == '[':
		b.WriteByte('\n')
		write(b, inner, indent+"  ")
	case json.Unmarshal(v, &text) == nil && strings.Contains(text, "\n"):
		b.WriteString("\n" + strings.TrimSuffix(text, "\n") + "\n")
	default:
		b.WriteByte(' ')
		write(b, inner, "")
	}
	return true
}
