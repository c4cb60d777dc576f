// Command linked does nothing, with everything linked that hutch links: the
// floor under hutch's start-up time.
package main

import (
	_ "github.com/alecthomas/kong"

	_ "github.com/hutch-run/hutch/host/backend"
	_ "github.com/hutch-run/hutch/host/backendcheck"
	_ "github.com/hutch-run/hutch/host/doctor"
	_ "github.com/hutch-run/hutch/host/reference"
	_ "github.com/hutch-run/hutch/host/report"
	_ "github.com/hutch-run/hutch/host/run"
	_ "github.com/hutch-run/hutch/host/runfile"
	_ "github.com/hutch-run/hutch/host/scaffold"
	_ "github.com/hutch-run/hutch/host/session"
	_ "github.com/hutch-run/hutch/host/store"
	_ "github.com/hutch-run/hutch/host/terminal"
)

func main() {}
