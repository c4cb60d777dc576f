package piped_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/host/piped"
)

func TestJoin(t *testing.T) {
	disk, torn := errors.New("the disk is full"), errors.New("the archive is torn")
	endless := func(w io.Writer) error {
		for {
			if _, err := io.WriteString(w, "more "); err != nil {
				return fmt.Errorf("send: %w", err) // as a caller that says what it was doing
			}
		}
	}
	whole := func(w io.Writer) error { _, err := io.WriteString(w, "all"); return err }
	some := func(r io.Reader) error { _, err := io.ReadFull(r, make([]byte, 2)); return err }
	for _, c := range []struct {
		name  string
		write func(io.Writer) error
		read  func(io.Reader) error
		want  error
	}{
		{"both are content", whole, func(r io.Reader) error {
			b, err := io.ReadAll(r)
			if string(b) != "all" {
				t.Errorf("read %q", b)
			}
			return err
		}, nil},
		{"the reader has enough", endless, some, nil},
		{"the reader finds fault", endless, func(r io.Reader) error { return errors.Join(some(r), torn) }, torn},
		{"the writer fails", func(w io.Writer) error { return errors.Join(whole(w), disk) }, func(r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			if !errors.Is(err, disk) {
				t.Errorf("the reader saw %v", err)
			}
			return fmt.Errorf("unpack: %w", err)
		}, disk},
		{"the writer fails after the reader has gone", func(io.Writer) error { return disk }, func(io.Reader) error { return nil }, disk},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := piped.Join(c.write, c.read)
			if !errors.Is(err, c.want) || c.want != nil && strings.Contains(err.Error(), "unpack") {
				t.Errorf("the error is %v, want %v", err, c.want)
			}
		})
	}
}
