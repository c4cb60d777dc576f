// Command hutch-lima-guest is what the Lima backend puts into its virtual machines: see package guest. It is no program
// for people.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/guest"
	"github.com/hutch-run/hutch/sdk/guestfiles"
)

func main() {
	err := fmt.Errorf("this program is started by hutch, in virtual machines")
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "serve":
			flags := flag.NewFlagSet("serve", flag.ContinueOnError)
			user := flags.String("user", "", "whose commands they are")
			boot := flags.Duration("boot", 10*time.Minute, "how long the guest may take to boot")
			if err = flags.Parse(os.Args[2:]); err == nil {
				err = guest.Serve(context.Background(), *user, *boot)
			}
		case "init":
			err = guest.Init()
		case "files":
			if guestfiles.Files(os.Args[2:]) != nil {
				os.Exit(1) // it has said why
			}
			return
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hutch-lima-guest:", err)
		os.Exit(125)
	}
}
