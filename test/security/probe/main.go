// Command probe is the hostile payload of the security tests: it runs inside a
// sandbox, tries one attack, and says whether it got through.
//
//	probe CASE [ARG…]
//
// It prints one JSON object, {"breached": bool, "detail": "…"}. The test decides
// with it and with what it sees on the host. Attacks leave nothing behind but
// uniquely named marker files, which the test looks for and removes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
)

// verdict is what an attack came to.
type verdict struct {
	Breached bool   `json:"breached"`
	Detail   string `json:"detail"`
}

func breached(format string, args ...any) verdict {
	return verdict{Breached: true, Detail: fmt.Sprintf(format, args...)}
}

func held(format string, args ...any) verdict {
	return verdict{Detail: fmt.Sprintf(format, args...)}
}

// attempts sums up several tries of one attack: one success is a breach.
type attempts struct{ won, lost []string }

func (a *attempts) try(name string, err error) {
	if err == nil {
		a.won = append(a.won, name)
	} else {
		a.lost = append(a.lost, fmt.Sprintf("%s: %v", name, err))
	}
}

func (a *attempts) verdict() verdict {
	if len(a.won) > 0 {
		return breached("%s", strings.Join(a.won, "; "))
	}
	return held("%s", strings.Join(a.lost, "; "))
}

var cases = map[string]func(args []string) verdict{
	"C0": control,

	"FS-01": writeAny, "FS-03": writeThroughSymlink, "FS-04": procRoot,
	"FS-05": hardlink, "FS-06": devices, "FS-07": remount,

	"SEC-01": readSecret, "SEC-02": readSecret, "SEC-03": readSecret, "SEC-04": readSecret,
	"ENV-01": environ,

	"PRV-01": noNewPrivs, "PRV-02": capabilities, "PRV-03": seccomp, "PRV-04": userNamespace,
	"PRV-05": riskySyscalls, "PRV-06": sensitiveWrites, "PRV-07": kernelLog,
	"PRV-08": foreignCalls, "PRV-09": setIDBits, "PRV-10": families, "PRV-11": personalities, "PRV-12": hostUser,
	"PRV-13": machineFiles,

	"NET-01": dialTCP, "NET-02": dialUnix, "NET-03": routes, "NET-04": dialUnix,

	"PROC-01": seeProcess, "PROC-02": signalProcess, "PROC-03": daemonise, "PROC-04": ignoreTerm,
	"TTY-01": injectInput,

	"RES-01": forks, "RES-02": memory, "RES-03": bigFile, "RES-05": descriptors, "RES-06": coreLimit,
	"RES-07": memfds, "RES-08": manyUsers, "RES-09": manyFiles, "RES-10": bigFile, "RES-11": printMuch, "RES-12": forks,
	"WS-01": litter, "WS-02": gitHooks, "WS-03": gitHooks,
	"RACE": swapForever,
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	if os.Args[1] == "linger" { // a child of daemonise, memory or forks
		linger()
	}
	if os.Args[1] == "foreign" && len(os.Args) > 2 { // a child of foreignCalls
		foreignCall(os.Args[2])
	}
	f, ok := cases[os.Args[1]]
	if !ok {
		usage()
	}
	v := f(os.Args[2:])
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		os.Exit(1)
	}
	if strings.HasPrefix(os.Args[1], "RES-") && !v.Breached { // as a program ends that cannot go on
		os.Exit(1)
	}
}

func usage() {
	names := make([]string, 0, len(cases))
	for name := range cases {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "usage: probe CASE [ARG…], where CASE is one of %s\n", strings.Join(names, " "))
	os.Exit(2)
}

// control does what honest code does: it writes the workspace and ends with 7.
func control([]string) verdict {
	if err := os.WriteFile("written", []byte("by the payload\n"), 0o644); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(7)
	panic("unreachable")
}
