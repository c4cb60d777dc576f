package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sessionRequest asks a guest for a process, with three descriptors for its streams.
type sessionRequest struct {
	Line string   // for the user's shell, or
	Argv []string // a command that sudo was asked for
	Dir  string

	// Of the hostagent, without streams:
	Listening bool   // which ports something listens on, as JSON
	Dial      string // a connection to this address: a line break, and then its bytes
}

// sessionEnd is how it ended.
type sessionEnd struct {
	Code   int
	Signal int
	Err    string
}

// sudoSocket is where sudo asks the guest's first process for what only root may do.
const sudoSocket = "/run/limatest.sock"

// guestMain is the first process of a guest.
func guestMain([]string) error {
	spec := &guestSpec{}
	if err := json.NewDecoder(os.Stdin).Decode(spec); err != nil {
		return err
	}
	listener := os.NewFile(3, "listener")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	events := os.NewFile(4, "events")
	if err := spec.build(); err != nil {
		fmt.Fprintf(events, "build the guest: %v\n", err)
		return err
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE) // and not ignored, which is inherited
	k := &keeper{spec: spec, waiting: map[int]chan syscall.WaitStatus{}}
	go k.reap()
	for _, l := range []struct {
		make func() (net.Listener, error)
		root bool
	}{
		{func() (net.Listener, error) { return net.FileListener(listener) }, false},
		{func() (net.Listener, error) { return net.Listen("unix", sudoSocket) }, true},
	} {
		in, err := l.make()
		if err != nil {
			return err
		}
		go k.accept(in.(*net.UnixListener), l.root)
	}
	if err := os.Chmod(sudoSocket, 0o666); err != nil {
		return err
	}
	time.Sleep(spec.BootDelay) // the boot scripts, which sshd does not wait for
	for _, script := range spec.Provision {
		if end := k.run(&sessionRequest{Argv: []string{"/bin/sh", "-c", script}, Dir: "/"}, nil, true); end.Code != 0 || end.Err != "" {
			fmt.Fprintf(events, "a provision script ended with %+v\n", end)
			return errors.New("provision")
		}
	}
	if err := os.WriteFile("/run/lima-boot-done", nil, 0o644); err != nil {
		return err
	}
	fmt.Fprintln(events, "booted")
	events.Close()
	select {}
}

// keeper starts processes in the guest and reaps what ends.
type keeper struct {
	spec    *guestSpec
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

func (k *keeper) reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for {
		for k.reapOne() {
		}
		<-ended
	}
}

func (k *keeper) reapOne() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	var ws syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
	if err != nil || pid <= 0 {
		return err == syscall.EINTR
	}
	if ch := k.waiting[pid]; ch != nil {
		delete(k.waiting, pid)
		ch <- ws
	}
	return true
}

func (k *keeper) accept(l *net.UnixListener, root bool) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			continue
		}
		go k.session(c, root)
	}
}

func (k *keeper) session(c *net.UnixConn, root bool) {
	defer c.Close()
	req := &sessionRequest{}
	files, err := receive(c, req)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err == nil && !root && (req.Listening || req.Dial != "") {
		k.answer(c, req)
		return
	}
	end := sessionEnd{Code: 1}
	switch {
	case err != nil:
		end.Err = err.Error()
	case len(files) != 3:
		end.Err = "a session has three streams"
	case root && noNewPrivileges(c):
		end.Err = `sudo: The "no new privileges" flag is set, which prevents sudo from running as root.`
	default:
		end = k.run(req, files, root)
	}
	_ = json.NewEncoder(c).Encode(end)
}

// answer answers the hostagent.
func (k *keeper) answer(c *net.UnixConn, req *sessionRequest) {
	if req.Dial != "" {
		k.connect(c, req.Dial)
		return
	}
	if all, err := listeners(); err == nil {
		_ = json.NewEncoder(c).Encode(all)
	}
}

// run runs one process to its end.
func (k *keeper) run(req *sessionRequest, files []*os.File, root bool) sessionEnd {
	argv := req.Argv
	home := "/home/" + k.spec.User + ".guest"
	name, cred := k.spec.User, &syscall.Credential{Uid: uint32(k.spec.UID), Gid: uint32(k.spec.GID), NoSetGroups: k.spec.UserSpace}
	if k.spec.UserSpace {
		cred.Uid, cred.Gid = 0, 0
	}
	if root {
		name, cred, home = "root", nil, "/root"
	} else {
		argv = []string{"/bin/bash", "-c", req.Line}
		if req.Line == "" {
			argv = []string{"/bin/bash", "-l"}
		}
		req.Dir = home
	}
	fds := []uintptr{}
	for _, f := range files {
		fds = append(fds, f.Fd())
	}
	k.mu.Lock()
	path, err := lookPath(argv[0])
	pid := 0
	if err == nil {
		pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
			Dir: req.Dir, Files: fds, Sys: &syscall.SysProcAttr{Setsid: true, Credential: cred},
			Env: []string{"HOME=" + home, "USER=" + name, "LOGNAME=" + name, "SHELL=/bin/bash", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		})
	}
	done := make(chan syscall.WaitStatus, 1)
	if err == nil {
		k.waiting[pid] = done
	}
	k.mu.Unlock()
	if err != nil {
		return sessionEnd{Code: 1, Err: fmt.Sprintf("sudo: %s: %v", argv[0], err)}
	}
	ws := <-done
	if ws.Signaled() {
		return sessionEnd{Code: 255, Signal: int(ws.Signal())}
	}
	return sessionEnd{Code: ws.ExitStatus()}
}

func lookPath(name string) (string, error) {
	if name != "" && name[0] == '/' {
		_, err := os.Stat(name)
		return name, err
	}
	for _, dir := range []string{"/usr/local/bin/", "/usr/sbin/", "/usr/bin/"} {
		if _, err := os.Stat(dir + name); err == nil {
			return dir + name, nil
		}
	}
	return "", syscall.ENOENT
}

// noNewPrivileges says whether the process at the other end could not become root by executing sudo.
func noNewPrivileges(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	var cred *unix.Ucred
	_ = raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || cred == nil {
		return true
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cred.Pid))
	if err != nil {
		return true
	}
	return !containsLine(string(status), "NoNewPrivs:\t0")
}
