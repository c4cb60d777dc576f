package backendtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// session is one run of the suite: what all checks share.
type session struct {
	target Target
	facts  *facts
	config json.RawMessage
	bad    []BadConfig
	base   string   // private directory below which the suite makes everything
	short  string   // begins the id of every sandbox of this run
	owner  string   // of all sandboxes of this run
	before []string // mounts of this machine before the suite began

	checkTime time.Duration // after which a check has failed

	mu         sync.Mutex
	hung       map[string]int // checks that hung, by the call
	stopped    string         // why no further checks are run; "" while they are
	main       *instance
	complaints []string // of cleaning up, reported by the leftovers checks
	boxes      []*sdk.CreateRequest
	idle       map[string][]*box // by kind: that checks have used and given back
	keeper     *C                // what made them, which destroys them
	dead       *box              // see C.destroyed
	found      []sdk.Finding     // what Check answered first
	instances  int
}

// newSession starts the backend for the first time and asks what it claims.
func newSession(
	ctx context.Context, target Target, config any, bad []BadConfig, checkTime time.Duration,
) (*session, error) {
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be sent: %w", err)
	}
	if config == nil {
		raw = nil
	}
	// Sockets have short names; TMPDIR may be long.
	base, err := os.MkdirTemp("/tmp", "hbt-")
	if err != nil {
		return nil, err
	}
	var word [4]byte
	rand.Read(word[:])
	if checkTime <= 0 {
		checkTime = defaultCheckTime
	}
	s := &session{
		target: target, config: raw, bad: bad, base: base, short: "hbt" + hex.EncodeToString(word[:]),
		checkTime: checkTime, hung: map[string]int{}, idle: map[string][]*box{},
	}
	s.owner = "owner-" + s.short
	// A backend may serve as another user than the one who tests it.
	if err := os.Chmod(base, 0o711); err != nil {
		return nil, err
	}
	s.before = mounts()
	closeOnExec()
	first, err := s.start(ctx, StartOptions{})
	if err != nil {
		os.RemoveAll(base)
		return nil, err
	}
	f, err := first.Describe(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("describe: %w", err), s.stop(first))
		os.RemoveAll(base)
		return nil, err
	}
	s.main = first
	s.keeper = &C{session: s, id: "used", dir: filepath.Join(base, "c", "used"), marker: s.short + "/used"}
	s.facts = &facts{Facts: f, process: first.PID() != 0, badConfigs: len(bad) > 0}
	return s, nil
}

// start starts an instance with a client.
func (s *session) start(ctx context.Context, o StartOptions) (*instance, error) {
	s.mu.Lock()
	s.instances++
	dir := filepath.Join(s.base, fmt.Sprintf("p%d", s.instances))
	s.mu.Unlock()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	p, err := s.target.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	conn := watched{p.Conn()}
	i := &instance{Plugin: p, dir: dir, rpc: pb.NewBackendClient(conn)}
	i.Client = client.New(conn, client.Options{
		PipeDir: dir, HostVersion: "conformance suite",
		Timeout: 20 * time.Second, SlowTimeout: 2 * s.checkTime, // the check ends first
	})
	return i, nil
}

// Drain implements the host's last call.
func (i *instance) Drain(ctx context.Context) error {
	i.over.Store(true)
	return i.Client.Drain(ctx)
}

// Abandon is [Plugin.Abandon].
func (i *instance) Abandon() {
	i.over.Store(true)
	i.Plugin.Abandon()
}

// stop ends an instance in the ordinary way. A backend that hangs is not waited for as long as others.
func (s *session) stop(i *instance) error {
	within := time.Minute
	s.mu.Lock()
	if s.stopped != "" || len(s.hung) > 0 {
		within = min(soon, s.checkTime)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := i.Stop(ctx)
	if err != nil {
		s.complain("stopping an instance: %v", err)
	}
	os.RemoveAll(i.dir)
	return err
}

// shared returns the instance that most checks use, started again if a check, or
// the backend itself, ended the last one.
func (c *C) shared() *instance {
	s := c.session
	s.mu.Lock()
	i := s.main
	s.mu.Unlock()
	if !gone(i) {
		return i
	}
	n, err := s.start(c.ctx, StartOptions{})
	if err != nil {
		c.Fatalf("the backend died in an earlier check and cannot be started again: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.main == i {
		s.main = n
	} else { // another check was faster
		go s.stop(n)
	}
	return s.main
}

// complain notes what went wrong outside the matter of a check.
func (s *session) complain(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complaints = append(s.complaints, fmt.Sprintf(format, args...))
}

func (s *session) recordBox(req *sdk.CreateRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes = append(s.boxes, req)
}

// close ends the session and removes what the suite itself made.
func (s *session) close() {
	if !gone(s.main) {
		s.endUsed()
		s.stop(s.main)
	}
	killAll(markerName+"="+s.short+"/", s.base+"/") // what a broken backend left running has been reported by now
	makeWritable(s.base)
	os.RemoveAll(s.base)
}

// killAll ends the processes whose environment has one of these.
func killAll(texts ...string) {
	for _, name := range names("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // of another user's process nothing
		if slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(environ, []byte(text)) }) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// closeOnExec hides from the backend, and its commands, what this process itself
// inherited: that is the doing of the process that started the suite.
func closeOnExec() {
	for _, name := range names("/proc/self/fd") {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// makeWritable lets directories be removed whose mode forbids it.
func makeWritable(dir string) {
	filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
}

// run runs one check to its result.
func (s *session) run(ctx context.Context, chk Check) (res Result) {
	res = Result{ID: chk.ID, Proves: chk.Proves, Outcome: Passed}
	if what := chk.missing(s.facts); what != "" {
		res.Outcome, res.Message = Skipped, "not claimed: "+what
		return res
	}
	s.mu.Lock()
	if s.stopped == "" && ctx.Err() != nil {
		s.stopped = context.Cause(ctx).Error()
	}
	why := s.stopped
	s.mu.Unlock()
	if why != "" {
		res.Outcome, res.Message = Skipped, "not run: "+why
		return res
	}
	began := time.Now()
	dir := filepath.Join(s.base, "c", strings.ReplaceAll(chk.ID, "/", "."))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		res.Outcome, res.Message = Failed, "the suite's own directory: "+err.Error()
		return res
	}
	open := &calls{open: map[*time.Time]string{}}
	ctx, cancel := context.WithTimeoutCause(context.WithValue(ctx, callsKey{}, open), s.checkTime, errHung)
	defer cancel()
	if chk.Alone {
		s.endUsed()
	}
	c := &C{session: s, ctx: ctx, id: chk.ID, dir: dir, marker: s.short + "/" + chk.ID + "/", alone: chk.Alone}
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		chk.run(c)
	}()
	var ended any
	select {
	case ended = <-done:
	case <-ctx.Done():
		// What hangs is left behind; the cleanups below may set it free.
		ended = failure{s.hangs(context.Cause(ctx), open)}
	}
	switch e := ended.(type) {
	case nil:
	case failure:
		res.Outcome, res.Message, res.Fix = Failed, e.msg, chk.Fix
	case skipped:
		res.Outcome, res.Message = Skipped, e.msg
	default:
		res.Outcome, res.Message = Failed, fmt.Sprintf("the check itself panicked: %v", e)
		res.Fix = "report it: this is a bug of the suite"
	}
	if res.Outcome == Failed {
		c.failed.Store(true)
		res.Message += s.lastLog()
	}
	s.clean(c, ctx.Err() != nil)
	res.Duration = time.Since(began)
	return res
}

// errHung is why a check was given up.
var errHung = errors.New("the check hangs")

// mostHung is how many checks may hang in one call until the suite ends: each costs its whole time, and shows the same.
const mostHung = 3

// hangs says of a check that did not come to its end what it waits for.
func (s *session) hangs(cause error, open *calls) string {
	call, text := open.waiting()
	if !errors.Is(cause, errHung) {
		s.mu.Lock()
		s.stopped = cause.Error()
		s.mu.Unlock()
		return fmt.Sprintf("the suite was ended: %v; %s", cause, text)
	}
	s.mu.Lock()
	s.hung[call]++
	if s.hung[call] == mostHung && s.stopped == "" {
		s.stopped = fmt.Sprintf("%d checks had hung", mostHung)
		if call != "" {
			s.stopped = fmt.Sprintf("%d checks had hung in %s", mostHung, call)
		}
	}
	inProcess := s.main.PID() == 0
	s.mu.Unlock()
	text = fmt.Sprintf("the check took longer than %s: %s", s.checkTime, text)
	if stacks := servingStacks(); inProcess && stacks != "" {
		text += "\ngoroutines of the backend:\n" + stacks
	}
	return text
}

// clean calls the cleanups of a check, last one first. A backend that hangs in one of them is not waited for.
func (s *session) clean(c *C, ended bool) {
	c.mu.Lock()
	todo := slices.Clone(c.cleanups)
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, f := range slices.Backward(todo) {
			f()
		}
	}()
	within := max(time.Minute, s.checkTime)
	if ended {
		within = min(soon, s.checkTime)
	}
	select {
	case <-done:
	case <-time.After(within):
		s.complain("cleaning up after %s took longer than %s", c.id, within)
	}
}

// lastLog is what the plugin logged last, when there is anything.
func (s *session) lastLog() string {
	s.mu.Lock()
	main := s.main
	s.mu.Unlock()
	if log := strings.TrimSpace(main.Log()); log != "" {
		return "\nlast lines of the plugin's log:\n" + log
	}
	return ""
}
