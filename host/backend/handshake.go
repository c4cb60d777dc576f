package backend

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/go-plugin"

	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk/client"
)

// mostFirstLine bounds the first line of a plugin.
const mostFirstLine = 4 << 10

// mostSocket is the longest path of a socket that works everywhere: 104 bytes on
// macOS, 108 on Linux, with the NUL.
const mostSocket = 103

// socketNames is what go-plugin appends to our directory for a socket.
const socketNames = len("/plugin-dir") + 10 + len("/plugin") + 10

// checkHandshake reads the first line of a plugin, which go-plugin would read too,
// but with other words and less care: the socket must be in dir.
// It returns what was found and what to do about it; found is "" when all is well.
func checkHandshake(line, dir string) (addr, found, fix string) {
	parts := strings.Split(line, "|")
	shown := quoteLine(line)
	core, err := strconv.Atoi(parts[0])
	if len(parts) < 4 || err != nil {
		return "", "it printed " + shown + " where the first line of a backend belongs",
			"it is another program, or one that prints before it calls sdk.Serve"
	}
	if core != plugin.CoreProtocolVersion {
		return "", fmt.Sprintf("it speaks go-plugin's core protocol %d, and this hutch speaks %d", core, plugin.CoreProtocolVersion),
			"rebuild the backend with the go-plugin that hutch uses"
	}
	app, err := strconv.Atoi(parts[1])
	if err != nil {
		return "", "it printed " + shown + " where the first line of a backend belongs", "this is a bug in the backend"
	}
	if app != client.Protocol {
		fix = "upgrade the backend"
		if app > client.Protocol {
			fix = "upgrade hutch, or install an older version of the backend"
		}
		return "", fmt.Sprintf("it speaks backend protocol %d, and this hutch speaks %d", app, client.Protocol), fix
	}
	if len(parts) < 5 || parts[4] != string(plugin.ProtocolGRPC) {
		return "", "it does not speak gRPC", "a backend is served by sdk.Serve, or by go-plugin with gRPC"
	}
	addr = filepath.Clean(parts[3])
	if parts[2] != "unix" || filepath.Dir(addr) != dir {
		return "", "it listens on " + quoteLine(parts[2]+" "+parts[3]) + ", and not on a socket in the directory that it was given",
			"do not use it: others on this machine could talk to it"
	}
	return addr, "", ""
}

// quoteLine shows a line of a stranger, at most 80 bytes of it.
func quoteLine(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return `"` + termsafe.Line(s) + `"`
}
