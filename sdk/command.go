package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/sdk/atomicfile"
)

// handleFile is where the SDK keeps the handle of a sandbox below its state
// directory, for the cleanup subcommand.
const handleFile = ".hutch-handle.json"

// command is what a backend does when a person starts it.
func command(s *Server, args []string, stdout, stderr io.Writer) int {
	name := "hutch-backend-" + s.facts.Name
	if len(args) == 0 {
		args = []string{"help"}
	}
	var err error
	switch args[0] {
	case "describe":
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(s.facts)
	case "version", "--version", "-version":
		_, err = fmt.Fprintf(stdout, "%s %s (sdk %s, protocol %d)\n", name, s.facts.Version, Version, ProtocolVersion)
	case "cleanup":
		err = cleanup(s, args[1:], stdout, stderr)
	case "help", "--help", "-help", "-h":
		usage(s, stderr)
		if len(os.Args) < 2 {
			return exitUsage
		}
		return exitOK
	default:
		fmt.Fprintf(stderr, "%s: there is no command %q\n\n", name, args[0])
		usage(s, stderr)
		return exitUsage
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitBroken
	}
	return exitOK
}

func usage(s *Server, w io.Writer) {
	name := "hutch-backend-" + s.facts.Name
	fmt.Fprintf(w, `%[1]s %[2]s: %[3]s

This is a backend for hutch. It is not started by hand: put it into
libexec/hutch beside the bin directory of hutch, or into a directory that
HUTCH_BACKEND_PATH names, and write

    hutch run --backend %[4]s -- COMMAND

By hand it does:

    %[1]s describe                 print what it can do as JSON
    %[1]s cleanup --state-dir DIR  destroy the sandbox whose state is in DIR
    %[1]s version                  print its version
`, name, s.facts.Version, s.facts.Summary, s.facts.Name)
}

// cleanup destroys a sandbox whose process died too hard to be talked to.
func cleanup(s *Server, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("cleanup", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("state-dir", "", "state directory of the sandbox")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return errors.New("usage: cleanup --state-dir DIR")
	}
	b, err := os.ReadFile(filepath.Join(*dir, handleFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(*dir); err != nil {
			return err
		}
		_, err := fmt.Fprintf(stdout, "nothing to do: no sandbox was allocated in %s\n", *dir)
		return err
	}
	if err != nil {
		return err
	}
	var h Handle
	if err := json.Unmarshal(b, &h); err != nil || !isSandboxID(h.ID) {
		return fmt.Errorf("%s holds no handle of a sandbox", filepath.Join(*dir, handleFile))
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	if err := s.backend.Destroy(ctx, h); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(*dir, handleFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = fmt.Fprintf(stdout, "destroyed sandbox %s\n", h.ID)
	return err
}

// saveHandle keeps h for cleanup. It is replaced as a whole or not at all.
func saveHandle(dir string, h Handle) error {
	b, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("the handle of sandbox %s is no JSON: %w", h.ID, err)
	}
	return atomicfile.Write(filepath.Join(dir, handleFile), b, 0o600, false)
}
