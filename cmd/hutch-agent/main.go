// Command hutch-agent is linked with everything that would slow each start of hutch: the providers' libraries for
// models, the server of the Model Context Protocol and the client of registries. hutch starts it:
//
//	hutch-agent model                             asks a language model, see host/agent/model
//	hutch-agent ui --hutch PATH …                 becomes the server of hutch ui, see host/ui
//	hutch-agent mcp CALL                          becomes the server of hutch mcp, see host/agent/mcp/call
//	hutch-agent registry CALL REPOSITORY …        makes one call of an OCI registry, see registry.go
//
// People start it for one thing:
//
//	hutch-agent serve [--listen ADDRESS] SCRIPT   serves a scripted model to any client, until it is interrupted
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/agent/mcp"
	"github.com/hutch-run/hutch/host/agent/mcp/call"
	"github.com/hutch-run/hutch/host/agent/model/provider"
	"github.com/hutch-run/hutch/host/agent/model/scripted"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/host/ui"
)

const usage = `hutch-agent is a part of hutch, which starts it; for people it has one command:

  hutch-agent serve [--listen 127.0.0.1:0] SCRIPT

which serves the answers of a script over the protocols of OpenAI and Anthropic`

func main() {
	command, args := "", []string(nil)
	if len(os.Args) > 1 {
		command, args = os.Args[1], os.Args[2:]
	}
	if command == "model" { // hutch stops it in order, by closing its input: a signal to the whole session must not
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	name, err := "hutch-agent", errors.New(usage)
	switch {
	case command == "model" && len(args) == 0:
		err = provider.Run(os.Stdin, os.Stdout, func(format string, args ...any) {
			note(name, time.Now().UTC().Format(time.RFC3339)+" "+format, args...)
		})
	case command == "mcp" && len(args) == 1:
		context.AfterFunc(ctx, stop) // a second signal kills
		name = "hutch"               // the user started hutch mcp
		err = serveMCP(ctx, args[0])
	case command == "ui":
		context.AfterFunc(ctx, stop)
		name = "hutch"
		err = serveUI(ctx, args, os.Stdout)
	case command == "registry":
		os.Exit(registry(ctx, args))
	case command == "serve":
		err = serveScript(ctx, args, os.Stdout)
	}
	if err != nil {
		note(name, "%s", err)
		os.Exit(125)
	}
}

func serveMCP(ctx context.Context, argument string) error {
	c, err := call.Parse(argument)
	if err != nil {
		return err
	}
	return mcp.Serve(ctx, c, func(format string, args ...any) { note("hutch", format, args...) })
}

func serveUI(ctx context.Context, args []string, out io.Writer) error {
	var c ui.Call
	flags := flag.NewFlagSet("ui", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.Version, "version", "", "")
	flags.StringVar(&c.Hutch, "hutch", "", "")
	flags.IntVar(&c.Port, "port", 0, "")
	flags.BoolVar(&c.NoOpen, "no-open", false, "")
	flags.BoolVar(&c.OnceToken, "once-token", false, "")
	if err := flags.Parse(args); err != nil || c.Hutch == "" {
		return errors.New("this is a part of hutch; start it with hutch ui")
	}
	return ui.Run(ctx, c, func(line string) { fmt.Fprintln(out, line) },
		func(format string, args ...any) { note("hutch", format, args...) })
}

func serveScript(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	listen := flags.String("listen", "127.0.0.1:0", "")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w\n\n%s", err, usage)
	}
	if flags.NArg() != 1 {
		return errors.New(usage)
	}
	s, err := scripted.Read(flags.Arg(0))
	if err != nil {
		return err
	}
	v, err := scripted.Serve(*listen, s, "", func(format string, args ...any) { note("hutch-agent", format, args...) })
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "openai     %s/v1\nanthropic  %s\n", v.URL(), v.URL())
	<-ctx.Done()
	return v.Close()
}

// note prints a message on stderr, without control characters.
func note(name, format string, args ...any) {
	text := termsafe.String(fmt.Sprintf(format, args...))
	fmt.Fprintln(os.Stderr, name+": "+strings.ReplaceAll(text, "\n", "\n       "))
}
