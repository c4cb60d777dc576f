package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// environ looks for args[0] in its own environment and in every other process's.
func environ(args []string) verdict {
	for _, kv := range os.Environ() {
		if strings.Contains(kv, args[0]) {
			return breached("own environment: %s", kv)
		}
	}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range files {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), args[0]) {
			return breached("%s", p)
		}
	}
	return held("%d environments searched", len(files))
}

// dialTCP connects to args[0], a service on the host's loopback.
func dialTCP(args []string) verdict {
	c, err := net.DialTimeout("tcp", args[0], 2*time.Second)
	if err != nil {
		return held("%v", err)
	}
	_ = c.Close()
	return breached("connected to %s", args[0])
}

// dialUnix connects to each of args: a path, or @name for an abstract socket.
func dialUnix(args []string) verdict {
	var a attempts
	for _, addr := range args {
		c, err := net.DialTimeout("unix", addr, 2*time.Second)
		if err == nil {
			_ = c.Close()
		}
		a.try(addr, err)
	}
	return a.verdict()
}

// routes looks for a way out. Connecting a datagram socket sends nothing.
func routes([]string) verdict {
	var a attempts
	interfaces, err := net.Interfaces()
	if err != nil {
		return held("no interfaces: %v", err)
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 {
			a.try("interface "+i.Name, nil)
		}
	}
	for _, addr := range []string{"169.254.169.254:80", "192.0.2.1:53", "[2001:db8::1]:53"} {
		c, err := net.Dial("udp", addr)
		if err == nil {
			_ = c.Close()
		}
		a.try(addr, err)
	}
	return a.verdict()
}

// seeProcess looks for args[0] in the command lines of all processes.
func seeProcess(args []string) verdict {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range files {
		if strings.HasPrefix(p, fmt.Sprintf("/proc/%d/", os.Getpid())) {
			continue
		}
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), args[0]) &&
			!strings.Contains(string(b), "PROC-01") {
			return breached("%s", p)
		}
	}
	return held("%d processes seen", len(files))
}

// signalProcess kills the host's process args[0].
func signalProcess(args []string) verdict {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return breached("bad pid: %v", err)
	}
	return held("kill: %v", unix.Kill(pid, unix.SIGKILL)) // the host decides
}

// daemonise leaves sixteen processes behind, each in its own session, deaf to signals, and with the marker args[0]
// on its command line.
func daemonise(args []string) verdict {
	for n := range 16 {
		middle := exec.Command("/proc/self/exe", "linger", "daemon", args[0])
		middle.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := middle.Run(); err != nil {
			return held("stopped after %d: %v", n, err)
		}
	}
	return held("left sixteen daemons") // the host decides
}

// ignoreTerm ignores every signal it can and never ends. args[0] marks it.
func ignoreTerm([]string) verdict {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	fmt.Println("ignoring")
	time.Sleep(2 * time.Minute) // a bound, and no select{}: the runtime ends a program all of which waits
	return verdict{}
}

// linger is what children of the probe do: wait, or fork once more and leave.
func linger() {
	if len(os.Args) > 3 && os.Args[2] == "daemon" {
		child := exec.Command("/proc/self/exe", "linger", os.Args[3])
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	time.Sleep(2 * time.Minute) // a bound, should the sandbox fail to end it
	os.Exit(0)
}
