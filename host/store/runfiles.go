package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// callsDir is where a loop keeps what was said to a model and by it, and what tools were asked and answered.
const callsDir = "calls"

// CodeDir is where [Run.WriteCode] puts files. It exists once there is one.
func (r *Run) CodeDir() string { return filepath.Join(r.dir, codeDir) }

// OutputDir is where collected outputs go. It is made when it is asked for, so that only runs with outputs have one.
func (r *Run) OutputDir() string {
	dir := filepath.Join(r.dir, outputDir)
	_ = os.Mkdir(dir, 0o700) // were that to fail, so would the first use of it, and say why
	return dir
}

// OpenLog opens the sink of a stream that keeps the last keep bytes; 0 keeps everything. A stream is opened once.
func (r *Run) OpenLog(s Stream, keep int64) (*LogWriter, error) { return newLogWriter(r.dir, s, keep) }

// Ref hashes a regular file of the run's directory, named by its slash path below it, for an event to point at.
func (r *Run) Ref(path string) (FileRef, error) {
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return FileRef{}, diskError("open", r.dir, err)
	}
	defer root.Close()
	return refFile(root, path)
}

// WriteCall writes a file of a loop below calls/, whole or not at all, for an event to point at. A file of that name
// which no event points at, because its writer died, is replaced.
func (r *Run) WriteCall(name string, data []byte) (FileRef, error) {
	dir := filepath.Join(r.dir, callsDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return FileRef{}, diskError("make", dir, err)
	}
	if err := writeAtomic(filepath.Join(dir, name), data, false); err != nil {
		return FileRef{}, err
	}
	return FileRef{Path: path.Join(callsDir, name), Size: int64(len(data)), SHA256: sumHex(data)}, nil
}

// ReadRef reads a file that an event points at, of at most max bytes, and refuses one that is not what the event says.
func (r *Record) ReadRef(ref FileRef, max int64) ([]byte, error) {
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return nil, diskError("read", r.Dir, err)
	}
	defer root.Close()
	b, err := safefile.ReadFile(root, filepath.FromSlash(ref.Path), max)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", r.ID, err)
	}
	if int64(len(b)) != ref.Size || sumHex(b) != ref.SHA256 {
		return nil, fmt.Errorf("run %s: %s is not what was recorded (`hutch audit verify %s` tells more)", r.ID, ref.Path, r.ID)
	}
	return b, nil
}
