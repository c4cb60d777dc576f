package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/confined"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/seccomp"
	"github.com/hutch-run/hutch/sdk/visible"
)

// ownProcesses is how many processes and threads of ours the pids limit of a container leaves room for: the agent's,
// which come to one less, and the one that stands above a command.
const ownProcesses = agent.OwnPIDs

// ownFiles is how many open files a container's own limit allows; the agent holds commands to theirs.
const ownFiles = 4096

// lifelineTime is how long an agent waits for its host, before it ends and its container with it.
const lifelineTime = time.Minute

// answerTime bounds the wait for a new container's agent, on a machine that is busy.
const answerTime = 30 * time.Second

const agentName = "hutch-podman-agent"

// findAgent returns the path of the agent's program: beside this one, and nowhere else.
func findAgent() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if p := os.Getenv(testAgentVariable); p != "" && strings.HasSuffix(self, ".test") {
		return p, nil
	}
	p := filepath.Join(filepath.Dir(self), agentName)
	if err := unix.Access(p, unix.R_OK|unix.X_OK); err != nil {
		return "", sdk.Errorf(sdk.ReasonMissing, "the program that works inside of containers is not at %s: %w", p,
			err).WithFix("install hutch whole: make install puts it beside hutch-backend-podman")
	}
	if strings.ContainsAny(p, ":,\"\\\n") {
		return "", sdk.Errorf(sdk.ReasonMissing, "the path %q has a character that Podman takes apart",
			p).WithFix("install hutch in a directory without colon, comma, quote and backslash")
	}
	return p, nil
}

// testAgentVariable names the agent in tests of this package; no other program looks at it.
const testAgentVariable = "HUTCH_TEST_PODMAN_AGENT"

// start starts the container, by the first overlay strategy and the first OCI runtime that work here.
func (s *sandbox) start(ctx context.Context) error {
	if s.over != overlayAuto {
		return s.startBy(ctx, s.over)
	}
	err := s.startBy(ctx, overlayNative)
	var no *noOverlay
	if !errors.As(err, &no) {
		return err
	}
	if rmErr := errors.Join(s.removeContainer(ctx), s.removeDirs(ctx, s.dirs.layer()),
		s.removeDirs(ctx, s.dirs.copies())); rmErr != nil {
		return errors.Join(err, rmErr)
	}
	s.notes = []string{"the workspace is a copy of the project, because Podman's overlay volume does not work here: " +
		no.why}
	return s.startBy(ctx, overlayCopy)
}

// noOverlay says that Podman's own overlay volume cannot be had.
type noOverlay struct{ why string }

func (e *noOverlay) Error() string { return "an overlay volume of Podman's cannot be had: " + e.why }

// startBy starts the container with one overlay strategy.
func (s *sandbox) startBy(ctx context.Context, over string) (err error) {
	was := s.over
	s.over = over
	defer func() {
		if err != nil {
			s.over = was
		}
	}()
	lower, err := s.copyUnmapped(ctx, over)
	if err != nil {
		return err
	}
	if err := unshift(s.id); err != nil { // of a process that was killed
		return err
	}
	defer func() { err = errors.Join(err, unshift(s.id)) }()
	l, err := newLayout(ctx, s.id, s.dirs, &s.spec, s.who, over, lower, s.held)
	if err != nil {
		return err
	}
	l.likeSource()
	if err := l.show(visible.Files(s.held.Shown, s.held.cpus), s.held.cgroup && s.held.Sampled == 0); err != nil {
		return err
	}
	args, err := s.runArgs(l)
	if err != nil {
		return err
	}
	if err := s.run(ctx, over, args); err != nil {
		return err
	}
	c, err := s.connect(ctx)
	if err != nil {
		return errors.Join(err, s.whyEnded(ctx))
	}
	if err := overlay.OpenWork(s.dirs.layer()); err != nil {
		c.leave()
		return err
	}
	if err := s.settle(ctx, c, l); err != nil {
		c.leave()
		return err
	}
	s.container = c
	s.ready = l.ready
	s.ready.Holds = s.held.Holds
	s.ready.Notes = slices.Concat(notes(&s.spec, s.who.rootless), s.notes, s.held.Notes())
	return s.save()
}

// runArgs are the arguments of podman run.
func (s *sandbox) runArgs(l *layout) ([]string, error) {
	program, err := findAgent()
	if err != nil {
		return nil, err
	}
	cfg := l.cfg
	h, err := s.handle()
	if err != nil {
		return nil, err
	}
	args := []string{"run", "--detach", "--name=" + s.name(), "--pidfile=" + s.dirs.pid(), "--pull=never",
		"--label=" + labelID + "=" + s.id, "--label=" + labelOwner + "=" + s.owner,
		"--label=" + labelData + "=" + string(h.Data),
		"--hostname=hutch", "--log-driver=k8s-file", "--log-opt=path=" + s.dirs.log(), "--log-opt=max-size=65536",
		"--restart=no", "--stop-signal=SIGKILL", "--no-healthcheck", "--network=none",
		"--security-opt=no-new-privileges", "--cap-drop=all", "--security-opt=mask=" + strings.Join(visible.Masked, ":"),
		fmt.Sprintf("--ulimit=nofile=%d:%[1]d", max(s.held.files, hardLimit(unix.RLIMIT_NOFILE, ownFiles))),
		fmt.Sprintf("--ulimit=nproc=%d:%[1]d", s.held.nproc),
		fmt.Sprintf("--ulimit=core=%d:%[1]d", hardLimit(unix.RLIMIT_CORE, limits.NoCore)),
	}
	filter, err := seccomp.OCI(seccomp.Options{SmallShm: s.held.Sampled > 0})
	if err == nil {
		err = os.WriteFile(s.dirs.seccomp(), filter, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("write the system call filter: %w", err)
	}
	args = append(args, "--security-opt=seccomp="+s.dirs.seccomp())
	if cfg.Root {
		args = append(args, "--read-only", "--read-only-tmpfs=false")
	}
	for _, name := range cfg.CapAdd {
		args = append(args, "--cap-add="+name)
	}
	args = append(args, s.who.flags...)
	args = append(args, s.held.flags...)
	args = append(args, l.flags...)
	options := agent.Options{Limits: map[string]uint64{"nofile": s.held.files}}
	if !s.keep {
		options.Lifeline = lifelineTime
	}
	command := agent.Args(options)
	args = append(args, "--volume="+program+":"+agent.Path+":ro,bind,nosuid,nodev,rprivate",
		"--preserve-fds=1", "--workdir=/", "--entrypoint="+command[0], cfg.image())
	return append(args, command[1:]...), nil
}

// run runs podman with the first OCI runtime that works.
func (s *sandbox) run(ctx context.Context, over string, args []string) error {
	_ = os.Remove(s.dirs.pid())
	pull := configOf(&s.spec).Pull
	if pull == "always" || pull == "newer" {
		if err := s.pull(ctx); err != nil && (pull == "always" || ctx.Err() != nil) {
			return s.explain(err, over)
		}
	}
	if s.progress != nil {
		s.progress("start the container", 0, 0)
	}
	err := s.runAny(ctx, args)
	if pull == "missing" && ctx.Err() == nil && imageMissing(err) {
		if err = s.pull(ctx); err == nil {
			err = s.runAny(ctx, args)
		}
	}
	return s.explain(err, over)
}

// pull asks the image from its registry.
func (s *sandbox) pull(ctx context.Context) error {
	image := configOf(&s.spec).image()
	if s.progress != nil {
		s.progress("pull the image "+image, 0, 0)
	}
	_, err := s.podman.call(ctx, "pull", "--quiet", image)
	return err
}

// imageMissing says whether podman run ended for want of its image.
func imageMissing(err error) bool {
	var e *commandError
	return errors.As(err, &e) && (strings.Contains(e.words, "image not known") ||
		strings.Contains(e.words, "no such image"))
}

// runAny runs podman with one OCI runtime after the other, up to one that works.
func (s *sandbox) runAny(ctx context.Context, args []string) error {
	var first error
	for _, runtime := range s.podman.runtimesFor(configOf(&s.spec).Runtime) {
		err := s.runOnce(ctx, runtime, args)
		if err == nil {
			s.podman.works(runtime)
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if rmErr := s.removeContainer(ctx); rmErr != nil {
			return errors.Join(err, rmErr)
		}
		first = cmpOr(first, err)
		if !blamesRuntime(err) {
			break
		}
	}
	return first
}

// runOnce runs podman with the agent's listening socket.
func (s *sandbox) runOnce(ctx context.Context, runtime string, args []string) error {
	socket, err := agent.Listen(s.dirs.socket())
	if err != nil {
		return err
	}
	defer socket.Close()
	return s.podman.start(ctx, s.podman.with(runtime), []*os.File{socket}, args...)
}

func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// blamesRuntime says whether another OCI runtime may do better.
func blamesRuntime(err error) bool {
	var e *commandError
	if !errors.As(err, &e) {
		return false
	}
	return slices.ContainsFunc([]string{"crun", "runc", "runtime", "cgroup"},
		func(word string) bool { return strings.Contains(e.words, word) })
}

// explain turns an error of podman run into one that says what to do.
func (s *sandbox) explain(err error, over string) error {
	var e *commandError // which a nil is not
	if !errors.As(err, &e) {
		return err
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(e.words), w) })
	}
	image := configOf(&s.spec).image()
	switch {
	case imageMissing(err) && configOf(&s.spec).Pull == "never":
		return &sdk.Error{Reason: sdk.ReasonMissing, Path: "image",
			Summary: fmt.Sprintf(`the image %s is not on this machine, and pull = "never" asks no registry`, image), Err: err,
			Fix: "podman pull " + image + ", or name one that podman images lists (each user has their own)"}
	case has("image not known", "no such image", "manifest unknown", "pinging container registry", "initializing source",
		"unable to copy from source", "short-name", "repository name not known", "unable to pull", "name unknown"):
		return &sdk.Error{Reason: sdk.ReasonMissing, Path: "image",
			Summary: fmt.Sprintf("the image %s is not on this machine and cannot be had: %s", image, withoutSource(e.words)),
			Err:     err,
			Fix:     "podman pull " + image + ", or name one that podman images lists (each user has their own)"}
	case over == overlayNative && s.spec.Workspace.Source != "" && has("overlay", "upperdir"):
		return errors.Join(&noOverlay{e.words}, &sdk.Error{Reason: sdk.ReasonMissing, Path: "overlay", Err: err,
			Summary: "Podman's overlay volume does not work here: " + e.words, Fix: `use overlay = "copy", or auto`})
	case has("the container name", "is already in use"):
		return sdk.Errorf(sdk.ReasonConfig, "there is a container %s already: %w", s.name(),
			err).WithFix("hutch gc, or podman rm -f %s", s.name())
	}
	return &sdk.Error{Reason: sdk.ReasonMissing, Summary: "podman could not start the container: " + e.words, Err: err,
		Fix: startFix()}
}

// startFix says what to do about a container that does not start for a reason that podman's words do not show.
func startFix() string {
	if confined.Here() {
		return confined.Fix()
	}
	return "hutch doctor podman tries each part by itself"
}

// withoutSource takes from podman's words on a pull that they were about the image, which is said already.
func withoutSource(words string) string {
	if _, cause, ok := strings.Cut(words, ": "); ok && strings.HasPrefix(words, "initializing source ") {
		return cause
	}
	return words
}

// connect finds the container's agent.
func (s *sandbox) connect(ctx context.Context) (*container, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	pid := s.dirs.readPID()
	if pid == 0 {
		return nil, sdk.Errorf(sdk.ReasonInternal, "the container %s ended as soon as it was started", s.name())
	}
	conn, err := agent.Dial(ctx, s.dirs.socket(), pid)
	if err != nil {
		return nil, fmt.Errorf("the container %s: %w", s.name(), err)
	}
	// The number is still that of the process that answered: it must, and will, live as long as the connection.
	root, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("the container %s: %w", s.name(), err)
	}
	c := &container{pid: pid, agent: conn, root: root, group: cgroupOf(pid), path: pathOf(pid)}
	if err := s.sample(c); err != nil {
		c.leave()
		return nil, fmt.Errorf("the container %s: %w", s.name(), err)
	}
	if s.keep {
		return c, nil
	}
	if err := conn.Lifeline(ctx); err != nil {
		c.leave()
		return nil, fmt.Errorf("tie the container to this process: %w", err)
	}
	return c, nil
}

// pathOf returns the PATH that the image gives to its programs, or "".
func pathOf(pid int) string {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for kv := range strings.SplitSeq(string(env), "\x00") {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			return value
		}
	}
	return ""
}

// find finds the container of a sandbox that another process made. One that does not run is found, too.
func (s *sandbox) find(ctx context.Context) error {
	l, err := planLayout(ctx, s.id, s.dirs, &s.spec, s.who, s.over, s.held)
	if err != nil {
		return err
	}
	s.ready = l.ready
	s.ready.Holds = s.held.Holds
	s.ready.Notes = append(notes(&s.spec, s.who.rootless), s.held.Notes()...)
	if s.dirs.readPID() == 0 {
		return nil
	}
	c, err := s.connect(ctx)
	switch {
	case err == nil:
		s.container = c
		return nil
	case errors.Is(err, os.ErrProcessDone):
		return nil // its end was not over when the number was read
	}
	if st, stErr := s.podman.state(ctx, s.name()); stErr == nil && !st.Running {
		return nil // the number is another's by now
	}
	return err
}
