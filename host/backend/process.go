package backend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/client"
)

const (
	lifelineFD = 3                      // of the plugin; the first of exec.Cmd's ExtraFiles
	scriptFD   = 4                      // of the interpreter, when the plugin is a script
	killTime   = 3 * time.Second        // how long a killed process may take to vanish
	logTime    = 200 * time.Millisecond // how long to wait for the log of a dead process
)

// process is one plugin process. It is the runner that go-plugin drives: go-plugin
// sets the environment up and understands the handshake, and everything in
// which it would be careless happens here.
type process struct {
	name  string
	bin   *binary
	dir   string   // private: socket and FIFOs
	env   []string // complete
	logs  *logs
	limit time.Duration // for the first line

	cmd      *exec.Cmd
	lifeline *os.File // write end; the plugin sees its end when we let go of it, or die
	stdout   *os.File
	stderr   *os.File
	first    chan firstLine
	line     string // the handshake
	addr     string // of the socket
	abort    <-chan struct{}

	meanwhile func() // called beside the wait for the first line, once the process runs; may be nil

	exited chan struct{} // closed when the process has been reaped and its log is read
	how    string        // how it ended; read after exited
	reaped chan struct{}
	kill   sync.Mutex // held while signalling, and to note that the pid is free
	free   bool
}

var _ runner.Runner = (*process)(nil)

// Start executes the binary and waits for its first line. An error is a *StartError,
// or the cause of ctx, and leaves no process.
func (p *process) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	if err := p.exec(); err != nil {
		return err
	}
	if p.meanwhile != nil {
		go p.meanwhile()
	}
	var se *StartError
	select {
	case f := <-p.first:
		switch {
		case f.err == nil:
			var found, fix string
			if p.addr, found, fix = checkHandshake(f.line, p.dir); found == "" {
				if fi, err := os.Lstat(p.addr); err != nil || fi.Mode().Type() != os.ModeSocket {
					found, fix = "it says that it listens on the socket "+quoteLine(filepath.Base(p.addr))+", which is not there",
						"a backend listens before it prints its first line"
				}
			}
			if found == "" {
				p.line = f.line
				return nil
			}
			se = p.startError(found, fix)
		case errors.Is(f.err, bufio.ErrBufferFull):
			se = p.startError(fmt.Sprintf("it printed more than %d bytes without a newline, beginning with %s", mostFirstLine,
				quoteLine(f.line)),
				"it is another program, or one that prints before it calls sdk.Serve")
		default:
			// Its stdout is closed: it is about to end, or has only closed it.
			select {
			case <-p.exited:
				se = p.ended(f.line)
			case <-ctx.Done():
				se = p.startError("it closed its standard output and did not end", "it is another program")
			}
		}
	case <-p.abort:
		p.stop()
		return context.Canceled
	case <-ctx.Done():
		se = p.startError(fmt.Sprintf("it printed nothing within %s", p.limit)+p.saying(),
			"it hangs, or waits for something; start it by hand to see more: "+p.bin.path)
	}
	p.stop()
	se.Lines = p.logs.lines()
	return se
}

// ended describes a process that was over before its first line.
func (p *process) ended(said string) *StartError {
	found := "it ended at once (" + p.how + ")"
	if said != "" {
		found += " after printing " + quoteLine(said)
	}
	return p.startError(found+p.saying(), "start it by hand to see more: "+p.bin.path)
}

// saying is the last line of its standard error, for the end of a sentence.
func (p *process) saying() string {
	lines := p.logs.lines()
	if len(lines) == 0 {
		return ""
	}
	return ", saying " + quoteLine(lines[len(lines)-1])
}

func (p *process) startError(found, fix string) *StartError {
	return &StartError{Name: p.name, Path: p.bin.path, Found: found, Fix: fix}
}

// exec starts the process: in its own process group, so that Ctrl-C does not
// reach it; with /dev/null as stdin; with our end of the lifeline on descriptor 3;
// from the descriptor that was hashed.
func (p *process) exec() (err error) {
	var toClose []*os.File
	defer func() {
		for _, f := range toClose {
			f.Close()
		}
		if err != nil {
			for _, f := range []*os.File{p.stdout, p.stderr, p.lifeline} {
				if f != nil {
					f.Close()
				}
			}
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	outR, outW := pipe()
	errR, errW := pipe()
	lifeR, lifeW := pipe()
	p.stdout, p.stderr, p.lifeline = outR, errR, lifeW
	toClose = append(toClose, outW, errW, lifeR)
	if err != nil {
		return err
	}
	path, passed := execPath(p.bin)
	p.cmd = &exec.Cmd{
		Path: path,
		Args: []string{p.bin.path}, Env: append(p.env, client.EnvLifeline+"="+strconv.Itoa(lifelineFD)),
		Dir: "/", Stdout: outW, Stderr: errW, ExtraFiles: []*os.File{lifeR},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if passed {
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, p.bin.file)
	}
	if err := p.cmd.Start(); err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		se := p.startError("it cannot be executed ("+err.Error()+")", "install the build for this machine")
		if p.bin.script {
			se.Fix = "see whether the interpreter in its first line is there"
		}
		return se
	}
	p.exited, p.reaped = make(chan struct{}), make(chan struct{})
	p.first = make(chan firstLine, 1)
	var readers sync.WaitGroup
	readers.Go(func() { p.logs.read(p.stderr) })
	readers.Go(p.readStdout)
	go p.reap(&readers)
	return nil
}

// firstLine is the first line on stdout, and what went wrong with it.
type firstLine struct {
	line string
	err  error
}

// readStdout takes the first line. Whatever comes later is nobody's, but must not
// fill the pipe, or the plugin would block.
func (p *process) readStdout() {
	r := bufio.NewReaderSize(p.stdout, mostFirstLine)
	line, err := r.ReadSlice('\n')
	p.first <- firstLine{strings.TrimSpace(string(line)), err}
	_, _ = io.Copy(io.Discard, r)
}

// reap waits for the end of the process. Its group is killed while its pid cannot
// have gone to another process yet.
func (p *process) reap(readers *sync.WaitGroup) {
	var err error
	if waitExited(p.cmd.Process.Pid) {
		p.killGroup()
		p.kill.Lock()
		err = p.cmd.Wait()
		p.free = true
		p.kill.Unlock()
	} else {
		err = p.cmd.Wait()
		p.killGroup()
		p.kill.Lock()
		p.free = true
		p.kill.Unlock()
	}
	p.how = howEnded(p.cmd.ProcessState, err)
	close(p.reaped)
	// A process that left the group may hold the pipes for ever.
	p.stderr.SetReadDeadline(time.Now().Add(logTime))
	p.stdout.SetReadDeadline(time.Now().Add(logTime))
	readers.Wait()
	p.stderr.Close()
	p.stdout.Close()
	p.lifeline.Close()
	p.logs.file.close()
	close(p.exited)
}

func howEnded(ps *os.ProcessState, err error) string {
	if ps == nil {
		return fmt.Sprint(err)
	}
	return ps.String() // "exit status 2", "signal: killed"
}

// killGroup sends SIGKILL to all that is left of the group.
func (p *process) killGroup() {
	p.kill.Lock()
	defer p.kill.Unlock()
	if !p.free {
		_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	}
}

// stop kills the group and waits until the process is gone, but not for ever: one
// that hangs in the kernel cannot be waited for.
func (p *process) stop() {
	p.killGroup()
	t := time.NewTimer(killTime)
	defer t.Stop()
	select {
	case <-p.exited:
	case <-t.C:
	}
}

// The rest is what go-plugin asks of a runner.

// Stdout gives go-plugin the first line, which was checked, and nothing else.
func (p *process) Stdout() io.ReadCloser { return io.NopCloser(strings.NewReader(p.line + "\n")) }

// Stderr gives go-plugin nothing: see logs.
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name returns the path of the binary.
func (p *process) Name() string { return p.bin.path }

// ID returns the process id.
func (p *process) ID() string { return strconv.Itoa(p.cmd.Process.Pid) }

// Wait waits for the end of the process.
func (p *process) Wait(context.Context) error {
	<-p.reaped
	return nil
}

// Kill kills the group.
func (p *process) Kill(context.Context) error {
	p.stop()
	return nil
}

// Diagnose has nothing to add: errors of Start say all.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost checks the address once more.
func (p *process) PluginToHost(network, addr string) (string, string, error) {
	if network != "unix" || addr == "" {
		return "", "", fmt.Errorf("backend %q listens on %s", p.name, quoteLine(network+" "+addr))
	}
	return network, p.addr, nil
}

// HostToPlugin changes nothing: both see the same files.
func (p *process) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}
