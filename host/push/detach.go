package push

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
)

// A detached command is kept by a supervisor: the same program once more, in its own session, with nothing of the
// caller's terminal. It writes the record of the run as any other host process does, so that `hutch logs -f`, `hutch
// runs` and `hutch pull` know no difference.

// supervisorLog is the file beside the backend's own with what the supervisor itself had to say. It goes with the
// sandbox.
const supervisorLog = ".hutch-supervisor.log"

// reportFD is where the supervisor says how it began.
const reportFD = 3

// report is what the supervisor says: the run, or why there is none.
type report struct {
	Run   string   `json:"run,omitempty"`
	Error string   `json:"error,omitempty"`
	Hints []string `json:"hints,omitempty"`
}

// Detach starts a supervisor for the sandbox, as the program exe with args and the sandbox's id behind them, and
// returns the id of the run once its record is on disk.
func Detach(ctx context.Context, st *store.Store, id, exe string, args ...string) (string, error) {
	logName := filepath.Join(st.Paths().SandboxState(id), supervisorLog)
	log, err := os.OpenFile(logName, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	cmd := exec.Command(exe, append(args, id)...) // which must outlive ctx
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = errors.Join(cmd.Start(), w.Close())
	if err != nil {
		return "", fmt.Errorf("start the supervisor: %w", err)
	}
	line := make(chan []byte, 1)
	go func() {
		b, _ := bufio.NewReader(io.LimitReader(r, 1<<20)).ReadBytes('\n')
		line <- b
	}()
	var said report
	select {
	case b := <-line:
		if json.Unmarshal(b, &said) != nil {
			return "", errors.Join(fmt.Errorf("the supervisor ended before it had begun: %s", lastOf(logName)), cmd.Wait())
		}
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return "", errors.Join(context.Cause(ctx), cmd.Wait())
	}
	if said.Error != "" {
		_ = cmd.Wait()
		return "", refuse(nil, termsafe.String(said.Error), said.Hints...)
	}
	return said.Run, cmd.Process.Release()
}

// lastOf is the last line of a log.
func lastOf(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return termsafe.Line(lines[len(lines)-1])
}

// Supervise is what the supervisor does: [Run], with nobody watching.
func Supervise(ctx context.Context, m *sandbox.Manager, st *store.Store, id string) error {
	to := os.NewFile(reportFD, "report")
	if to == nil {
		return errors.New("a supervisor is started by hutch push --detach")
	}
	syscall.CloseOnExec(reportFD)
	told := false
	tell := func(r report) {
		if told {
			return
		}
		told = true
		_ = json.NewEncoder(to).Encode(r) // the caller may be gone
		_ = to.Close()
	}
	_, _, err := Run(ctx, m, st, id, run.Streams{}, func(i store.SandboxInfo) { tell(report{Run: i.Push.Run}) })
	if err != nil {
		r := report{Error: err.Error()}
		var why *Refusal
		if errors.As(err, &why) {
			r.Hints = why.Hints
		}
		tell(r)
	}
	return err
}
