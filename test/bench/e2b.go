package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
)

// pushE2B makes sandboxes with a project on the local E2B server, against the same by hand: a machine, tar and gzip
// into an upload, and tar in the machine. What removes them is not counted.
func pushE2B(b *bench) (h, base sample, err error) {
	ctx := context.Background()
	const program = "libexec/hutch/hutch-backend-e2b"
	if err := install(filepath.Join(b.from, program), filepath.Join(b.dir, program)); err != nil {
		return h, base, err
	}
	src, err := b.sources(2000)
	if err != nil {
		return h, base, err
	}
	server, err := e2btest.Start(ctx, e2btest.Options{})
	if err != nil {
		return h, base, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	for name, value := range map[string]string{"E2B_API_KEY": server.Key, "E2B_API_URL": server.URL,
		"E2B_SANDBOX_URL": server.URL} {
		if err := os.Setenv(name, value); err != nil {
			return h, base, err
		}
	}
	plugin, stop, err := b.plugin(ctx, "e2b")
	if err != nil {
		return h, base, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	round := 0
	push := func() (cost, error) {
		round++
		start := time.Now()
		sandbox, err := b.sandbox(ctx, plugin, fmt.Sprintf("bench-%d", round), "{}", src)
		c := cost{wall: time.Since(start)}
		if err != nil {
			return c, err
		}
		return c, sandbox.Destroy(ctx)
	}
	hand := func() (cost, error) {
		start := time.Now()
		m, err := byHand{server: server}.push(src)
		c := cost{wall: time.Since(start)}
		if err != nil {
			return c, fmt.Errorf("by hand: %w", err)
		}
		_, err = m.call(http.MethodDelete, "/sandboxes/"+m.ID, "", nil)
		return c, err
	}
	h, base, err = interleave(b.rounds(40), push, hand)
	base.what = "POST /sandboxes, tar -cz into an upload, and tar -xz in the machine"
	return h, base, err
}

// byHand is a machine of the local server, used without hutch.
type byHand struct {
	server *e2btest.Server
	ID     string `json:"sandboxID"`
	Token  string `json:"envdAccessToken"`
}

// push makes a machine and brings the directory src there.
func (m byHand) push(src string) (byHand, error) {
	answer, err := m.call(http.MethodPost, "/sandboxes", "application/json",
		bytes.NewBufferString(`{"templateID":"base","timeout":300,"secure":true}`))
	if err == nil {
		err = json.Unmarshal(answer, &m)
	}
	if err != nil {
		return m, err
	}
	r, w := io.Pipe()
	tar := exec.Command("tar", "-cz", "-C", src, ".")
	tar.Stdout = w
	packed := make(chan error, 1)
	go func() {
		err := tar.Run()
		w.CloseWithError(err)
		packed <- err
	}()
	_, err = m.call(http.MethodPost, "/files?path=/tmp/in.tgz&username=user", "application/octet-stream", r)
	if err = errors.Join(err, r.Close(), <-packed); err != nil {
		return m, err
	}
	start := `{"process":{"cmd":"/bin/sh","args":["-c","mkdir project && tar -xzf /tmp/in.tgz -C project"]},"stdin":false}`
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(start))), start...)
	answer, err = m.call(http.MethodPost, "/process.Process/Start", "application/connect+json", bytes.NewReader(message))
	if err == nil && !bytes.Contains(answer, []byte(`"exit status 0"`)) {
		err = fmt.Errorf("tar in the machine: %q", answer)
	}
	return m, err
}

// call speaks to the machine, or to the service before there is one.
func (m byHand) call(method, path, typ string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequest(method, m.server.URL+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-API-Key", m.server.Key)
	req.Header.Set("Content-Type", typ)
	if m.ID != "" && method != http.MethodDelete {
		req.Header.Set("E2b-Sandbox-Id", m.ID)
		req.Header.Set("E2b-Sandbox-Port", "49983")
		req.Header.Set("X-Access-Token", m.Token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return answer, err
}
