package e2btest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process"
	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process/processconnect"
)

func byPid(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

// begin starts a command that is left running and returns its pid and its stream.
func begin(t *testing.T, p processconnect.ProcessClient, req *process.StartRequest) (uint32, *connect.ServerStreamForClient[process.StartResponse]) {
	t.Helper()
	stream, err := p.Start(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	if !stream.Receive() {
		t.Fatalf("no start: %v", stream.Err())
	}
	pid := stream.Msg().GetEvent().GetStart().GetPid()
	if pid == 0 {
		t.Fatalf("the first event is no start: %v", stream.Msg())
	}
	return pid, stream
}

func script(text string) *process.StartRequest {
	return &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", text}}}
}

// rest collects the output until the end.
func rest(stream *connect.ServerStreamForClient[process.StartResponse]) (string, *process.ProcessEvent_EndEvent) {
	var out strings.Builder
	var end *process.ProcessEvent_EndEvent
	for stream.Receive() {
		e := stream.Msg().GetEvent()
		out.Write(e.GetData().GetStdout())
		out.Write(e.GetData().GetPty())
		if e.GetEnd() != nil {
			end = e.GetEnd()
		}
	}
	return out.String(), end
}

// TestCodecs runs a command with every protocol and codec that connect-go speaks over HTTP/1.1.
func TestCodecs(t *testing.T) {
	c, id := daemonOf(t)
	for name, opts := range map[string][]connect.ClientOption{
		"proto":    nil,
		"json":     {connect.WithProtoJSON()},
		"gzip":     {connect.WithSendGzip()},
		"grpc-web": {connect.WithGRPCWeb()},
	} {
		p := processconnect.NewProcessClient(&http.Client{Transport: routed{to(id), http.DefaultTransport}}, c.s.URL, opts...)
		_, stream := begin(t, p, script("echo here; exit 5"))
		if out, end := rest(stream); out != "here\n" || end.GetExitCode() != 5 || stream.Err() != nil {
			t.Errorf("%s: %q %v %v", name, out, end, stream.Err())
		}
		if _, err := p.SendSignal(context.Background(), &process.SendSignalRequest{Process: byPid(999_999), Signal: process.Signal_SIGNAL_SIGKILL}); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConnect leaves a process's stream and comes back to it, while it runs and after its end.
func TestConnect(t *testing.T) {
	c, id := daemonOf(t)
	p := c.process(id)
	pid, stream := begin(t, p, script("while read line; do echo got $line; done; exit 9"))
	stream.Close()
	send := func(text string) {
		t.Helper()
		in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}}
		if _, err := p.SendInput(context.Background(), &process.SendInputRequest{Process: byPid(pid), Input: in}); err != nil {
			t.Fatal(err)
		}
	}
	again, err := p.Connect(context.Background(), &process.ConnectRequest{Process: byPid(pid)})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if !again.Receive() || again.Msg().GetEvent().GetStart().GetPid() != pid {
		t.Fatalf("%v %v", again.Msg(), again.Err())
	}
	send("one\n")
	if !again.Receive() || string(again.Msg().GetEvent().GetData().GetStdout()) != "got one\n" {
		t.Fatalf("%v %v", again.Msg(), again.Err())
	}
	if _, err := p.CloseStdin(context.Background(), &process.CloseStdinRequest{Process: byPid(pid)}); err != nil {
		t.Fatal(err)
	}
	if !again.Receive() || again.Msg().GetEvent().GetEnd().GetExitCode() != 9 {
		t.Fatalf("%v %v", again.Msg(), again.Err())
	}
	late, err := p.Connect(context.Background(), &process.ConnectRequest{Process: byPid(pid)})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if !late.Receive() || late.Msg().GetEvent().GetStart() == nil || !late.Receive() || late.Msg().GetEvent().GetEnd().GetExitCode() != 9 || late.Receive() || late.Err() != nil {
		t.Errorf("after its end: %v %v", late.Msg(), late.Err())
	}
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}}
	if _, err := p.SendInput(context.Background(), &process.SendInputRequest{Process: byPid(pid), Input: in}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("input after its end: %v", err)
	}
}

func TestStreamInput(t *testing.T) {
	c, id := daemonOf(t)
	p := c.process(id)
	pid, stream := begin(t, p, script("head -c 6"))
	in, err := p.StreamInput(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	msgs := []*process.StreamInputRequest{
		{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: byPid(pid)}}},
		{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}},
	}
	for _, text := range []string{"one", "two"} {
		msgs = append(msgs, &process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{
			Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}}}}})
	}
	for _, m := range msgs {
		if err := in.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	if out, end := rest(stream); out != "onetwo" || end.GetExitCode() != 0 {
		t.Errorf("%q %v", out, end)
	}
}

// TestDeadline checks that a deadline kills the leader, that no end is reported, and that children live on.
func TestDeadline(t *testing.T) {
	c, id := daemonOf(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second) // in which a busy machine starts both processes
	defer cancel()
	stream, err := c.process(id).Start(ctx, script("sleep 777 & wait"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	ended := false
	for stream.Receive() {
		ended = ended || stream.Msg().GetEvent().GetEnd() != nil
	}
	if connect.CodeOf(stream.Err()) != connect.CodeDeadlineExceeded || ended {
		t.Errorf("%v, ended %v", stream.Err(), ended)
	}
	if o := c.run(t, id, "", `pgrep -xfc 'sleep 777'`); o.stdout != "1\n" {
		t.Errorf("%+v", o)
	}
}

// TestSignals checks that only the leader is hit and that an unknown signal is refused.
func TestSignals(t *testing.T) {
	c, id := daemonOf(t)
	p := c.process(id)
	pid, stream := begin(t, p, script("trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.1; done"))
	if !stream.Receive() { // ready
		t.Fatal(stream.Err())
	}
	signal := func(s process.Signal) error {
		_, err := p.SendSignal(context.Background(), &process.SendSignalRequest{Process: byPid(pid), Signal: s})
		return err
	}
	if err := signal(2); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("SIGINT: %v", err)
	}
	if err := signal(process.Signal_SIGNAL_SIGTERM); err != nil {
		t.Fatal(err)
	}
	if out, end := rest(stream); out != "term\n" || end.GetExitCode() != 3 {
		t.Errorf("%q %v", out, end)
	}
	pid, stream = begin(t, p, script("exec sleep 1000"))
	if err := signal(process.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, end := rest(stream); end.GetExitCode() != -1 || end.GetExited() || end.GetStatus() != "signal: killed" || end.GetError() != "signal: killed" {
		t.Errorf("%v", end)
	}
}

func TestTerminal(t *testing.T) {
	c, id := daemonOf(t)
	p := c.process(id)
	req := script(`stty size; read line; stty size; read line; exit 2`)
	req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 81, Rows: 25}}
	pid, stream := begin(t, p, req)
	var screen string
	see := func(text string) {
		t.Helper()
		for !strings.Contains(screen, text) && stream.Receive() {
			screen += string(stream.Msg().GetEvent().GetData().GetPty())
		}
		if !strings.Contains(screen, text) {
			t.Fatalf("no %q in %q: %v", text, screen, stream.Err())
		}
	}
	see("25 81")
	if _, err := p.Update(context.Background(), &process.UpdateRequest{Process: byPid(pid), Pty: &process.PTY{Size: &process.PTY_Size{Cols: 100, Rows: 50}}}); err != nil {
		t.Fatal(err)
	}
	send := func(in *process.ProcessInput) error {
		_, err := p.SendInput(context.Background(), &process.SendInputRequest{Process: byPid(pid), Input: in})
		return err
	}
	if err := send(&process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x\n")}}); connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("stdin of a terminal: %v", err)
	}
	if err := send(&process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("x\n")}}); err != nil {
		t.Fatal(err)
	}
	see("50 100")
	if _, err := p.CloseStdin(context.Background(), &process.CloseStdinRequest{Process: byPid(pid)}); connect.CodeOf(err) != connect.CodeUnknown {
		t.Errorf("close the stdin of a terminal: %v", err)
	}
	if err := send(&process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte{4}}}); err != nil {
		t.Fatal(err)
	}
	if _, end := rest(stream); end.GetExitCode() != 2 {
		t.Errorf("%v", end)
	}
}

// TestBackpressure checks that a process waits for a client that does not read, and loses nothing to one that does.
func TestBackpressure(t *testing.T) {
	c, id := daemonOf(t)
	p := c.process(id)
	const size = 20 << 20
	_, stream := begin(t, p, script(fmt.Sprintf("head -c %d /dev/zero", size)))
	out, end := rest(stream)
	if len(out) != size || end.GetExitCode() != 0 {
		t.Errorf("%d bytes, want %d; %v", len(out), size, end)
	}
}

// TestUnauthorized checks what a secure sandbox answers without its token: the code is a number, for RPCs too.
func TestUnauthorized(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	id := c.create(t, object{"secure": true})
	for _, path := range []string{"POST /process.Process/List", "GET /files?path=x"} {
		method, path, _ := strings.Cut(path, " ")
		h := to(id)
		h["Content-Type"] = "application/json"
		for _, token := range []string{"", "wrong"} {
			if token != "" {
				h["X-Access-Token"] = token
			}
			if status, _, text := c.do(t, method, path, h, object{}); status != 401 || !strings.HasPrefix(text, `{"code":401,"message":"`) {
				t.Errorf("%s: %d %s", path, status, text)
			}
		}
	}
	if status, _, text := c.do(t, "GET", "/health", to(id), nil); status != 204 {
		t.Errorf("health: %d %s", status, text)
	}
	for _, path := range []string{"/init", "/freeze", "/unfreeze", "/fsfreeze"} {
		if status, _, _ := c.do(t, "POST", path, to(id), object{}); status != 404 {
			t.Errorf("%s from outside: %d", path, status)
		}
	}
	stream, err := c.process(id).Start(context.Background(), script("true"))
	if err == nil {
		for stream.Receive() {
		}
		err = stream.Err()
	}
	if connect.CodeOf(err) != connect.CodeUnauthenticated || errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

// TestOrphans checks that what has lost its parent is reaped, and that nothing inside can end the daemon.
func TestOrphans(t *testing.T) {
	c, id := daemonOf(t)
	if o := c.run(t, id, "", `for i in 1 2 3 4 5; do (sh -c 'true & true' &); done; kill -9 1; kill -TERM 1; kill -STOP 1; kill -9 -1; exit 4`); o.end.GetExitCode() != 4 || o.err != nil {
		t.Errorf("%+v", o)
	}
	until(t, "no process is left to be reaped", func() string {
		if o := c.run(t, id, "", `cat /proc/[0-9]*/stat | grep ') Z 1 '`); o.stdout != "" {
			return o.stdout
		}
		return ""
	})
}
