package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/remoteexec"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// agentProgram is the name of the program that works in pods. It lies beside the backend's own.
const agentProgram = "hutch-kubernetes-agent"

// testAgentVariable names it in tests of this package; no other program looks at that.
const testAgentVariable = "HUTCH_TEST_KUBERNETES_AGENT"

// findAgent finds that program.
func findAgent() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	p := filepath.Join(filepath.Dir(self), agentProgram)
	if test := os.Getenv(testAgentVariable); test != "" && strings.HasSuffix(self, ".test") {
		p = test
	}
	if _, err := os.Stat(p); err != nil {
		return "", sdk.Errorf(sdk.ReasonMissing, "the program that works inside of pods is missing: %w", err).
			WithFix("install hutch whole: make install puts it beside hutch-backend-kubernetes")
	}
	return p, nil
}

// exec runs a program in a container of a pod until it ends. An exit code other than 0 is a [utilexec.CodeExitError].
func (c *cluster) exec(ctx context.Context, pod, container string, argv []string, in io.Reader,
	out, errs io.Writer) error {
	o := &core.PodExecOptions{Container: container, Command: argv, Stdin: in != nil, Stdout: true, Stderr: true}
	u := c.pods.Post().Namespace(c.Namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(o, parameters).URL()
	ws, err := remotecommand.NewWebSocketExecutor(c.cfg, "GET", u.String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.cfg, "POST", u)
	if err != nil {
		return err
	}
	e, err := remotecommand.NewFallbackExecutor(ws, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: errs})
}

// link is a connection to the agent in a pod. Its methods are safe for concurrent use.
type link struct {
	client *remote.Client
	hello  wire.Hello
	pod    string
	said   *supervise.Tail
	ended  chan struct{} // closed when the exec has ended
	err    error         // how, once ended is closed
}

// attach starts the agent in a container by an exec that stays.
func (c *cluster) attach(ctx context.Context, pod, container, program string, box *wire.Box) (*link, error) {
	l := &link{pod: pod, said: &supervise.Tail{}, ended: make(chan struct{})}
	life, end := context.WithCancel(context.Background())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	go func() {
		defer close(l.ended)
		l.err = c.exec(life, pod, container, []string{program, "attach"}, inR, forgiving{outW}, l.said)
		_ = inR.CloseWithError(io.ErrClosedPipe)
		_ = outW.Close()
	}()
	closeAll := sync.OnceFunc(func() {
		_ = inW.Close() // the agent ends by that
		_ = outR.CloseWithError(io.ErrClosedPipe)
		timer := time.AfterFunc(closeTime, end)
		go func() {
			<-l.ended
			timer.Stop()
			end()
		}()
	})
	client, err := remote.NewClient(&pipes{outR, inW, closeAll})
	if err != nil {
		closeAll()
		return nil, err
	}
	l.client = client
	ask, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	reply, err := l.ask(ask, wire.Request{Op: wire.OpHello, Box: box}, nil)
	if err == nil {
		err = json.Unmarshal([]byte(reply.State), &l.hello)
	}
	if err == nil && l.hello.Version != wire.Version {
		err = sdk.Errorf(sdk.ReasonConfig, "hutch's program in the pod speaks version %d of the protocol, and this one %d",
			l.hello.Version, wire.Version).WithFix("take an agent_image of this version of hutch")
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// Bounds of a connection.
const (
	attachTime = time.Minute
	closeTime  = 2 * time.Second // for the agent to end by itself
)

// pipes are both directions of an exec.
type pipes struct {
	io.Reader
	io.Writer
	close func()
}

func (p *pipes) Close() error { p.close(); return nil }

// forgiving takes also what comes after nobody reads any more, which client-go would complain about on stderr.
type forgiving struct{ io.Writer }

func (f forgiving) Write(p []byte) (int, error) {
	_, _ = f.Writer.Write(p)
	return len(p), nil
}

func (l *link) close() {
	_ = l.client.Close()
	<-l.ended
}

// ask asks for something that is no command. data, where there is any, writes what follows the request.
func (l *link) ask(ctx context.Context, req wire.Request, data func(io.Writer) error) (*remote.Reply, error) {
	reply, err := remoteexec.Ask(ctx, l.client, req, data)
	return reply, l.lost(err)
}

// killed says whether the agent itself was killed in the pod, which ends the connection too.
func (l *link) killed() bool {
	select {
	case <-l.ended:
	case <-time.After(closeTime):
		return false
	}
	exit := utilexec.CodeExitError{}
	return errors.As(l.err, &exit) && exit.Code == 137
}

// lost says which connection broke when err is about that; any other error stays as it is.
func (l *link) lost(err error) error {
	broke := (*remoteexec.LostError)(nil)
	if !errors.As(err, &broke) {
		return err
	}
	why := broke.Err
	select {
	case <-l.ended:
		if l.err != nil {
			why = l.err
		}
	case <-time.After(closeTime):
	}
	e := sdk.Errorf(sdk.ReasonUnavailable, "the connection to the pod %s broke: %w", l.pod, why).
		WithFix("see how the pod is: kubectl describe pod %s", l.pod)
	e.Detail, e.Retryable = l.said.String(), true
	return e
}
