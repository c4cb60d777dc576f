package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// The home of a persistent sandbox may lie in memory, or in a container that is recreated. So what home blocks put
// there is kept beside the backend's own files, one archive for each block and an index, which is written last; it goes
// with the sandbox.
const (
	keptHome  = ".hutch-home"
	keptIndex = "index.json"
)

// keptBlock is what a home block put somewhere.
type keptBlock struct {
	At   string `json:"at"`   // the directory that its archive belongs into
	Path string `json:"path"` // what it made
}

// homeKeeper keeps what is put.
type homeKeeper struct {
	dir    string
	blocks []keptBlock
}

func keepHome(stateDir string) (*homeKeeper, error) {
	k := &homeKeeper{dir: filepath.Join(stateDir, keptHome)}
	return k, os.Mkdir(k.dir, 0o700)
}

func archive(dir string, n int) string { return filepath.Join(dir, strconv.Itoa(n)+".tar") }

// put is [send] for the block that makes path, and keeps what was sent.
func (k *homeKeeper) put(ctx context.Context, sb *client.Sandbox, at, path string, pack func(io.Writer) error) error {
	f, err := os.OpenFile(archive(k.dir, len(k.blocks)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = send(ctx, sb, at, func(w io.Writer) error { return pack(io.MultiWriter(w, f)) })
	k.blocks = append(k.blocks, keptBlock{at, path})
	return errors.Join(err, f.Close())
}

func (k *homeKeeper) close() error {
	index, err := json.Marshal(k.blocks)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(k.dir, keptIndex), index, 0o600)
}

// missingScript prints the numbers of those of its arguments that do not exist.
const missingScript = `n=0; for p; do [ -e "$p" ] || [ -L "$p" ] || echo $n; n=$((n+1)); done`

// Refurnish puts back what the home blocks of a persistent sandbox had put into its home and is not there any more.
// What is there is left alone, no matter who changed it. stateDir is the sandbox's own.
func Refurnish(ctx context.Context, sb *client.Sandbox, stateDir string) error {
	dir := filepath.Join(stateDir, keptHome)
	index, err := os.ReadFile(filepath.Join(dir, keptIndex))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var blocks []keptBlock
	if err == nil {
		err = json.Unmarshal(index, &blocks)
	}
	if err != nil {
		return fmt.Errorf("what was put into the home directory: %w", err)
	}
	argv := []string{"sh", "-c", missingScript, "sh"}
	for _, b := range blocks {
		argv = append(argv, b.Path)
	}
	var said bytes.Buffer
	exit, err := sb.Exec(ctx, &client.Command{Argv: argv, Dir: sb.Ready().Workspace, Stdout: &said, Timeout: time.Minute})
	if err == nil && (exit.Cause != sdk.CauseExited || exit.Code != 0) {
		err = fmt.Errorf("the sandbox's shell ended with %s, code %d", exit.Cause, exit.Code)
	}
	if err != nil {
		return fmt.Errorf("see what is missing in the home directory: %w", err)
	}
	for _, word := range strings.Fields(said.String()) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n >= len(blocks) {
			return fmt.Errorf("see what is missing in the home directory: the sandbox says %.20q", word)
		}
		if err := putBack(ctx, sb, dir, n, blocks[n]); err != nil {
			return fmt.Errorf("put %s back: %w", blocks[n].Path, err)
		}
	}
	return nil
}

func putBack(ctx context.Context, sb *client.Sandbox, dir string, n int, b keptBlock) error {
	f, err := os.Open(archive(dir, n))
	if err != nil {
		return err
	}
	defer f.Close()
	return sb.Put(ctx, b.At, sdk.FormatTar, f)
}
