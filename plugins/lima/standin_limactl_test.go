package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// limactlCall is one call of limactl, taken apart.
type limactlCall struct {
	name  string
	args  []string
	flags map[string]string
	json  bool
}

// flagsOf are the flags that this stand-in knows, by command; "" are those of every command. The value says whether it
// takes one.
var flagsOf = map[string]map[string]bool{
	"":       {"tty": false, "log-format": true, "log-level": true, "debug": false, "y": false},
	"create": {"name": true},
	"start":  {"name": true, "timeout": true, "foreground": false},
	"stop":   {"force": false, "f": false},
	"delete": {"force": false, "f": false},
	"list":   {"json": false, "quiet": false, "q": false, "format": true},
	"info":   {},
}

func parseCommand(args []string) (*limactlCall, error) {
	c := &limactlCall{flags: map[string]string{}}
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !strings.HasPrefix(a, "-") || a == "-" {
			if c.name == "" {
				c.name = a
			} else {
				c.args = append(c.args, a)
			}
			continue
		}
		name, value, has := strings.Cut(strings.TrimLeft(a, "-"), "=")
		takes, known := flagsOf[""][name]
		if !known {
			takes, known = flagsOf[c.name][name]
		}
		if !known {
			return c, fmt.Errorf("unknown flag: --%s", name)
		}
		if takes && !has {
			if i++; i >= len(args) {
				return c, fmt.Errorf("flag needs an argument: --%s", name)
			}
			value = args[i]
		}
		if !has && !takes {
			value = "true"
		}
		c.flags[name] = value
	}
	c.json = c.flags["log-format"] == "json"
	return c, nil
}

// log writes to stderr as logrus does.
func (c *limactlCall) log(level, format string, args ...any) {
	msg, now := fmt.Sprintf(format, args...), time.Now().UTC().Format(time.RFC3339)
	if c.json {
		b, _ := json.Marshal(map[string]string{"level": level, "msg": msg, "time": now})
		fmt.Fprintf(os.Stderr, "%s\n", b)
		return
	}
	fmt.Fprintf(os.Stderr, "time=%q level=%s msg=%q\n", now, level, msg)
}

func limactlMain(args []string) error {
	if os.Geteuid() == 0 {
		fmt.Fprint(os.Stderr, "limactl: must not run as the root user\n")
		return exitCode(1)
	}
	c, err := parseCommand(args)
	if err == nil {
		err = c.run()
	}
	var code exitCode
	if err != nil && !errors.As(err, &code) {
		c.log("fatal", "%v", err)
		return exitCode(1)
	}
	return err
}

func (c *limactlCall) run() error {
	home := os.Getenv("LIMA_HOME")
	if home == "" {
		home = filepath.Join(os.Getenv("HOME"), ".lima")
	}
	if err := os.MkdirAll(filepath.Join(home, "_config"), 0o700); err != nil {
		return err
	}
	named := func() (*vm, error) {
		if len(c.args) != 1 {
			return nil, fmt.Errorf("accepts 1 arg(s), received %d", len(c.args))
		}
		if !validName.MatchString(c.args[0]) {
			return nil, fmt.Errorf("identifier %q must match %s", c.args[0], validName)
		}
		return &vm{name: c.args[0], home: home}, nil
	}
	switch c.name {
	case "info":
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"version": limaVersion, "vmTypes": []string{"qemu"}, "limaHome": home, "hostOS": "linux"})
	case "list", "ls":
		return c.list(home)
	case "create":
		return c.create(home)
	case "start":
		i, err := named()
		if err != nil {
			return err
		}
		return c.start(i)
	case "stop":
		i, err := named()
		if err != nil {
			return err
		}
		return c.stop(i)
	case "delete", "rm", "remove":
		i, err := named()
		if err != nil {
			return err
		}
		return c.delete(i)
	case "":
		return errors.New("subcommand is required")
	}
	return fmt.Errorf("unknown command %q for %q", c.name, "limactl")
}

// limaVersion is the version of Lima that the stand-in behaves like.
const limaVersion = "2.2.0"

var validName = regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-](?:[A-Za-z0-9]+))*$`)

// list prints one object on a line for each instance; without any, and for an unknown one, it warns.
func (c *limactlCall) list(home string) error {
	all := instances(home)
	if len(c.args) > 0 {
		unmatched := false
		for _, name := range c.args {
			if !slices.Contains(all, name) {
				c.log("warning", "No instance matching %s found.", name)
				unmatched = true
			}
		}
		all = slices.DeleteFunc(all, func(n string) bool { return !slices.Contains(c.args, n) })
		if unmatched && len(all) == 0 {
			return errors.New("unmatched instances")
		}
	} else if len(all) == 0 {
		c.log("warning", "No instance found. Run `limactl create` to create an instance.")
	}
	for _, name := range all {
		i := &vm{name: name, home: home}
		switch {
		case c.flags["quiet"] != "" || c.flags["q"] != "":
			fmt.Println(name)
		case c.flags["json"] != "":
			if err := json.NewEncoder(os.Stdout).Encode(i.describe()); err != nil {
				return err
			}
		default:
			fmt.Printf("%s\t%s\n", name, i.status())
		}
	}
	return nil
}

func instances(home string) (names []string) {
	entries, _ := os.ReadDir(home)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), "_") && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

// create makes an instance from a file, or from stdin, and boots nothing.
func (c *limactlCall) create(home string) error {
	if len(c.args) != 1 {
		return fmt.Errorf("accepts 1 arg(s), received %d", len(c.args))
	}
	name := c.flags["name"]
	if name == "" {
		if c.args[0] == "-" {
			return errors.New("must pass instance name with --name when reading template from stdin")
		}
		name = strings.TrimSuffix(filepath.Base(c.args[0]), ".yaml")
	}
	if !validName.MatchString(name) {
		return fmt.Errorf("identifier %q must match %s", name, validName)
	}
	var text []byte
	var err error
	if c.args[0] == "-" {
		text, err = io.ReadAll(os.Stdin)
	} else {
		text, err = os.ReadFile(c.args[0])
	}
	if err != nil {
		return err
	}
	i := &vm{name: name, home: home}
	if i.exists() {
		return fmt.Errorf("instance `%s` already exists", name)
	}
	if n := len(filepath.Join(i.dir(), "ssh.sock.1234567890123456")); n >= 108 {
		return fmt.Errorf("instance name `%s` too long: the socket path would have %d bytes", name, n)
	}
	return i.create(c, text)
}

// start boots an instance. One that does not exist is made from the default template, which tries a download.
func (c *limactlCall) start(i *vm) error {
	if !i.exists() {
		c.log("info", "Creating an instance `%s` from template://default", i.name)
		if err := i.create(c, []byte("images: []\n")); err != nil {
			return err
		}
		return errors.New("failed to download the image: dial tcp: lookup cloud.debian.org: no such host")
	}
	switch i.status() {
	case "Running":
		c.log("info", "The instance `%s` is already running. Run `limactl shell %s` to open the shell.", i.name, i.name)
		return nil
	case "Stopped":
	default:
		return fmt.Errorf("errors inspecting instance: %v", i.errors())
	}
	timeout := 10 * time.Minute
	if t := c.flags["timeout"]; t != "" {
		var err error
		if timeout, err = time.ParseDuration(t); err != nil {
			return fmt.Errorf("invalid argument %q for \"--timeout\" flag: %w", t, err)
		}
	}
	return i.boot(c, timeout)
}

// stop stops an instance that runs; forced, any.
func (c *limactlCall) stop(i *vm) error {
	if !i.exists() {
		return fmt.Errorf("open %s: no such file or directory", filepath.Join(i.dir(), "lima.yaml"))
	}
	if c.flags["force"] == "" && c.flags["f"] == "" {
		if st := i.status(); st != "Running" {
			return fmt.Errorf("expected status `Running`, got `%s`", st)
		}
	}
	return i.halt()
}

// delete removes an instance. One that does not exist is a warning, and success.
func (c *limactlCall) delete(i *vm) error {
	if !i.exists() {
		c.log("warning", "Ignoring non-existent instance `%s`", i.name)
		return nil
	}
	if c.flags["force"] == "" && c.flags["f"] == "" && i.status() == "Running" {
		return errors.New("failed to delete instance `" + i.name + "`: expected status `Stopped`, got `Running`")
	}
	if err := i.halt(); err != nil {
		return err
	}
	c.log("info", "Deleted `%s` (`%s`)", i.name, i.dir())
	return i.remove()
}
