package run

import (
	"strings"
	"testing"

	"github.com/hutch-run/hutch/host/store"
)

// Output that the disk did not take is not said to be beyond a limit.
func TestALogThatCannotBeWritten(t *testing.T) {
	w := newWorld(t, &plain{})
	j := w.runner().newJob(w.load(shell("true", ""))[0], Streams{})
	rec, err := w.store.CreateRun(store.NewRun{Name: "test", Backend: "plain", Definition: map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rec.Close() })
	j.rec = rec
	log, err := rec.OpenLog(store.Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{name: "stdout", log: log, total: &total{}}
	for i, text := range []string{"kept", "lost"} {
		if _, err := s.Write([]byte(text)); err != nil {
			t.Fatal(err) // the command goes on
		}
		if i == 0 {
			_ = log.Close() // as a disk that fails would have it
		}
	}
	j.closeSinks(s)
	if got := j.res.Stdout; got.Text != "kept" || got.Bytes != 8 || got.Dropped != 4 || !strings.Contains(got.Lost, "stdout.log") {
		t.Errorf("%+v", got)
	}
}
