package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// webserver serves the loopback: /SIZE is that many bytes.
func webserver() (address string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.ParseInt(r.URL.Path[1:], 10, 64)
			_, _ = io.CopyN(w, zeros{}, n)
		})}
	go func() { _ = server.Serve(l) }()
	return l.Addr().String(), func() { server.Close() }, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// withRule compares a run that may reach one host with a run that has no network.
func withRule(b *bench) (h, base sample, err error) {
	h, base, err = interleave(b.rounds(60),
		b.command(b.hutch(), "run", "-q", "--backend", "bwrap", "--allow-host", "host:9", "--", "true"),
		b.command(b.hutch(), "run", "-q", "--backend", "bwrap", "--", "true"))
	base.what = "hutch without a network"
	return h, base, err
}

// download compares 1 GB by way of a rule with 1 GB from the loopback: the transfer alone, as curl measures it.
func download(b *bench) (h, base sample, err error) {
	size := "1000000000"
	if b.quick {
		size = "100000000"
	}
	return b.fetch(10, b.transfer, "/"+size, "-s", "-o", "/dev/null", "-w", "%{time_total}")
}

// connections compares 10,000 connections, 200 at once, by way of a rule with as many on the loopback. One that fails
// fails the measurement.
func connections(b *bench) (h, base sample, err error) {
	paths := "/[1-10000]"
	if b.quick {
		paths = "/[1-1000]"
	}
	return b.fetch(3, b.command, paths, "-s", "-o", "/dev/null", "--parallel", "--parallel-max", "200", "--fail-early",
		"-H", "Connection: close")
}

// transfer runs a command that prints how many seconds it measured itself.
func (b *bench) transfer(argv ...string) func() (cost, error) {
	return func() (cost, error) {
		var out strings.Builder
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env, cmd.Stdout = append(os.Environ(), "HUTCH_HOME="+b.home), &out
		c, err := b.spend(cmd)
		if err == nil {
			c.wall, err = time.ParseDuration(out.String() + "s")
		}
		return c, err
	}
}

// fetch compares curl in a sandbox with curl outside of it.
func (b *bench) fetch(rounds int, measure func(...string) func() (cost, error), path string, options ...string) (h,
	base sample, err error) {
	address, stop, err := webserver()
	if err != nil {
		return h, base, err
	}
	defer stop()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return h, base, err
	}
	curl := append([]string{"curl"}, options...)
	inside := append([]string{b.hutch(), "run", "-q", "--backend", "bwrap", "--allow-host", "host:" + port, "--"},
		append(curl, "http://host:"+port+path)...)
	h, base, err = interleave(b.rounds(rounds), measure(inside...), measure(append(curl, "http://"+address+path)...))
	base.what = "curl on the host"
	return h, base, err
}
