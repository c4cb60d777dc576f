// Command hutch-mcp serves sandboxes to clients of the Model Context Protocol. It is started by `hutch mcp`, which has the
// flags and the help.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/hutch-run/hutch/host/agent/mcp"
	"github.com/hutch-run/hutch/host/agent/mcp/call"
	"github.com/hutch-run/hutch/host/termsafe"
)

func main() {
	if err := serve(); err != nil {
		note("%s", err)
		os.Exit(125)
	}
}

func serve() error {
	c, err := call.Parse(os.Args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	return mcp.Serve(ctx, c, note)
}

// note tells the user something, as hutch does.
func note(format string, args ...any) {
	text := termsafe.String(fmt.Sprintf(format, args...))
	fmt.Fprintln(os.Stderr, "hutch: "+strings.ReplaceAll(text, "\n", "\n       "))
}
