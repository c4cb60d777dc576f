// Command hutch-model talks to language models for hutch, which starts it: the providers' libraries would cost each start of
// hutch some milliseconds.
//
//	hutch-model channel                         is how hutch starts it: host/agent/model/channel says what is spoken
//	hutch-model serve [--listen ADDRESS] SCRIPT  serves a scripted model to any client, until it is interrupted
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

	"github.com/hutch-run/hutch/host/agent/model/scripted"
	"github.com/hutch-run/hutch/host/agent/model/worker"
	"github.com/hutch-run/hutch/host/termsafe"
)

const usage = `this is a part of hutch, which starts it to talk to models; for people it has one command:

  hutch-model serve [--listen 127.0.0.1:0] SCRIPT

which serves the answers of a script over the protocols of OpenAI and Anthropic`

func main() {
	if err := run(os.Args[1:]); err != nil {
		note("%s", err)
		os.Exit(125)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "channel":
		// A signal for a whole session is not for it: hutch tears down in order and then closes its input.
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
		return worker.Run(os.Stdin, os.Stdout, stamped)
	case len(args) > 0 && args[0] == "serve":
		return serve(args[1:], os.Stdout)
	}
	return errors.New(usage)
}

func serve(args []string, out io.Writer) error {
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	v, err := scripted.Serve(*listen, s, "", note)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "openai     %s/v1\nanthropic  %s\n", v.URL(), v.URL())
	<-ctx.Done()
	return v.Close()
}

// stamped is note with the time, for a log.
func stamped(format string, args ...any) {
	note(time.Now().UTC().Format(time.RFC3339)+" "+format, args...)
}

// note tells the user something, as hutch does.
func note(format string, args ...any) {
	text := termsafe.String(fmt.Sprintf(format, args...))
	fmt.Fprintln(os.Stderr, "hutch-model: "+strings.ReplaceAll(text, "\n", "\n       "))
}
