// Command hutch-e2b-server is a local server that speaks E2B's protocol, to try hutch's e2b backend without an account
// and offline. It needs bubblewrap.
//
//	hutch-e2b-server [flags]
//
// It prints the environment that clients need, as a shell takes it, and serves until it is interrupted; then all
// sandboxes end. What it does and does not do is said in the doc comment of package e2btest.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
)

func main() {
	// What the process that started this has left open is not for the sandboxes. A kernel before 5.11 cannot mark them so.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	var o e2btest.Options
	flag.StringVar(&o.Addr, "addr", "127.0.0.1:0",
		"where to listen; port 0 is any free one. Anyone who can connect and has the key can run commands here")
	flag.StringVar(&o.Key, "key", "", "the API key to ask for; the default is one made up")
	flag.StringVar(&o.Dir, "dir", "", "where the files of sandboxes lie; the default is a temporary directory")
	templates := flag.String("templates", "base", "the names of templates, with commas; all are this machine's /usr")
	flag.IntVar(&o.MaxSandboxes, "max-sandboxes", 20, "how many sandboxes may run at once")
	flag.DurationVar(&o.MaxTimeout, "max-timeout", time.Hour, "the longest life of a sandbox")
	flag.BoolVar(&o.HostNetwork, "host-network", false, "give sandboxes that ask for the internet this machine's network")
	asRoot := flag.Bool("allow-root", false,
		"serve although this is root, whose files below /usr the commands of sandboxes can then read")
	quiet := flag.Bool("quiet", false, "do not tell of every request on stderr")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "hutch-e2b-server: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	if os.Getuid() == 0 && !*asRoot {
		fmt.Fprintln(os.Stderr,
			"hutch-e2b-server: commands in sandboxes would be root on this machine, behind an ordinary bubblewrap: start it "+
				"as an ordinary user, or with -allow-root for code of your own")
		os.Exit(1)
	}
	o.Templates = strings.Split(*templates, ",")
	if !*quiet {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := e2btest.Start(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hutch-e2b-server:", err)
		os.Exit(1)
	}
	for _, line := range s.Env() {
		fmt.Println("export", line)
	}
	<-ctx.Done()
	stop() // a second interrupt does not wait
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-e2b-server: close:", err)
		os.Exit(1)
	}
}
