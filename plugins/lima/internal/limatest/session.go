package limatest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// enterMain is what sshd runs for every session: it has the guest run what the client asked for.
func enterMain(args []string) error {
	if len(args) != 1 {
		return errors.New("want the guest's socket")
	}
	return inGuest(args[0], &sessionRequest{Line: os.Getenv("SSH_ORIGINAL_COMMAND")})
}

// sudoMain is sudo in a guest, for the user who may do everything: sudo -n -- COMMAND.
func sudoMain(args []string) error {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		end := args[0] == "--"
		if args[0] != "-n" && !end {
			return fmt.Errorf("the stand-in for sudo knows no %s", args[0])
		}
		if args = args[1:]; end {
			break
		}
	}
	if len(args) == 0 {
		return errors.New("there is no command")
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	return inGuest(sudoSocket, &sessionRequest{Argv: args, Dir: dir})
}

// inGuest has a guest run something on this process's streams, and ends as that did.
func inGuest(socket string, req *sessionRequest) error {
	signal.Ignore(syscall.SIGPIPE)
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := send(c, req, os.Stdin, os.Stdout, os.Stderr); err != nil {
		return err
	}
	// What runs in the guest has them now. As long as we had them too, nobody would see it close them.
	for _, f := range []*os.File{os.Stdin, os.Stdout} {
		f.Close()
	}
	end := sessionEnd{}
	if err := json.NewDecoder(c).Decode(&end); err != nil {
		return fmt.Errorf("the guest is gone: %w", err)
	}
	if end.Err != "" {
		fmt.Fprintln(os.Stderr, end.Err)
	}
	if end.Signal != 0 {
		signal.Reset()
		_ = syscall.Kill(os.Getpid(), syscall.Signal(end.Signal))
		select {}
	}
	if end.Code != 0 {
		return exitCode(end.Code)
	}
	return nil
}
