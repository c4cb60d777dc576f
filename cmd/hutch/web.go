package main

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"github.com/hutch-run/hutch/host/helper"
)

type uiCmd struct {
	Port      int  `placeholder:"N" help:"Port on 127.0.0.1 (default: any that is free)."`
	NoOpen    bool `help:"Do not open a browser; the link is printed in any case."`
	OnceToken bool `help:"Let one browser in: no other link follows the one that was used."`
}

// Help is the text below the synopsis.
func (*uiCmd) Help() string {
	return `Serves a page on 127.0.0.1 until ^C and opens it where there is a display: a card for each sandbox, by
project, with its backend, isolation, state and overlay, what runs in it and what it changed; its changes as a review,
to be applied and undone; recent runs with their output, limits and events. What other processes do appears by itself.
The link, printed on stdout, opens one browser and works once. Then a link for another browser is printed, unless
--once-token is given. docs/ui.md says more.

    hutch ui
    hutch ui --port 7000 --no-open`
}

func (c *uiCmd) Run(u *ui) error {
	if c.Port < 0 || c.Port > 65535 {
		return errors.New("--port: a port is a number up to 65535, or 0 for any")
	}
	hutch, agent, err := helper.Find()
	if err != nil {
		return err
	}
	argv := []string{agent, "ui", "--version", version, "--hutch", hutch, "--port", strconv.Itoa(c.Port)}
	if c.NoOpen {
		argv = append(argv, "--no-open")
	}
	if c.OnceToken {
		argv = append(argv, "--once-token")
	}
	return syscall.Exec(agent, argv, os.Environ())
}
