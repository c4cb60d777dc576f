package run

import (
	"io"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/host/result"
)

// maxText is how much of the end of each stream is text in the result; the log has the rest.
const maxText = 64 << 10

// maxExpectText is how much of the end of each stream an expect block looks at.
const maxExpectText = 32 << 20

type tailText struct {
	text string
	cut  bool // there is more in the log
}

// tail reads the end of a stream's log, repairs it, and takes the secrets out.
func (j *job) tail(name string, bytes, dropped int64) (tailText, error) {
	b, cut, err := readTail(filepath.Join(j.rec.Dir(), name+".log"), maxText+j.secrets.Longest())
	if err != nil || len(b) == 0 {
		return tailText{}, err
	}
	begun := cut || dropped > 0 // what comes first may be the rest of something
	s := j.secrets.Tail(result.Text(b, begun), begun)
	if len(s) > maxText {
		s, cut = result.Text([]byte(s[len(s)-maxText:]), true), true
	}
	return tailText{s, cut}, nil
}

// readTail reads the last most bytes of a file.
func readTail(path string, most int) (b []byte, cut bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	if size := st.Size(); size > int64(most) {
		cut = true
		if _, err := f.Seek(size-int64(most), io.SeekStart); err != nil {
			return nil, false, err
		}
	}
	b, err = io.ReadAll(io.LimitReader(f, int64(most)))
	return b, cut, err
}
