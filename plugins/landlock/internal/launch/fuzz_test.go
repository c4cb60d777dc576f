package launch

import (
	"encoding/json"
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzFailure never takes what a launcher says for success, nor an error number that there is not.
func FuzzFailure(f *testing.F) {
	for _, s := range []string{"x2", "x0", "x", "x-1", "x99999999999999999999", "d20", "d", "fno room", "f", "b\x01\x00\x00\x00", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) == 0 {
			return
		}
		err := failure(said)
		if err == nil {
			t.Fatalf("%q is success", said)
		}
		errno := syscall.ENOENT
		var not *NotExecuted
		var noDir *NoDir
		switch {
		case errors.As(err, &not):
			errno = not.Errno
		case errors.As(err, &noDir):
			errno = noDir.Errno
		}
		if errno == 0 || errno > 4095 {
			t.Errorf("%q is the error number %d", said, errno)
		}
	})
}

// FuzzOrder sends any bytes as names, arguments and variables; they arrive as they are.
func FuzzOrder(f *testing.F) {
	f.Add([]byte("/bin/sh"), []byte(`{"Argv":["eA=="]}`))
	f.Add([]byte("\xff\x00\n"), []byte(`{"Filter":"AA","CPUs":[-1]}`))
	f.Add([]byte(""), []byte("null"))
	f.Fuzz(func(t *testing.T, name, order []byte) {
		want := Order{Candidates: [][]byte{name}, Argv: [][]byte{name, {}}, Env: [][]byte{name}, Dir: name, Filter: name}
		line, err := json.Marshal(&want)
		if err != nil {
			t.Fatal(err)
		}
		var got Order
		if err := json.Unmarshal(line, &got); err != nil || string(got.Dir) != string(name) || !cmp.Equal(got.Argv, want.Argv) || !cmp.Equal(got.Candidates, want.Candidates) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		_ = json.Unmarshal(order, &Order{})
	})
}
