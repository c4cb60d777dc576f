package server

import (
	"bytes"
	"os"
	"strconv"
)

// score is this process's oom_score_adj, by which the kernel chooses whom to kill
// when memory runs out. Children inherit it.
type score struct {
	file        *os.File
	own, forked []byte
}

// openScore must be called while the process still owns its files below /proc.
func openScore() *score {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return &score{}
	}
	buf := make([]byte, 16)
	n, _ := f.ReadAt(buf, 0)
	own, err := strconv.Atoi(string(bytes.TrimSpace(buf[:n])))
	if err != nil {
		f.Close()
		return &score{}
	}
	return &score{f, []byte(strconv.Itoa(own)), []byte(strconv.Itoa(min(own+500, 1000)))}
}

// raise makes what is forked until the returned function is called a likelier
// victim than this process. Should it not be possible, nothing else depends on it.
func (s *score) raise() (lower func()) {
	if s.file == nil {
		return func() {}
	}
	_, _ = s.file.WriteAt(s.forked, 0)
	return func() { _, _ = s.file.WriteAt(s.own, 0) }
}
