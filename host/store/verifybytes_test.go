package store

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// fullRun is a finished run that has every file that a run can have.
func fullRun(t *testing.T, s *Store) *Run {
	t.Helper()
	r := newRun(t, s)
	var refs []FileRef
	for _, name := range []string{"main.py", "pkg/deep/util.py", "empty"} {
		ref, err := r.WriteCode(name, 0o644, strings.NewReader(strings.TrimSuffix("print('"+name+"')\n", "print('empty')\n")))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	if err := r.SetBackend("bwrap"); err != nil {
		t.Fatal(err)
	}
	if err := r.Event(EventCode, nil, refs...); err != nil {
		t.Fatal(err)
	}
	for stream, text := range map[Stream]string{Stdout: strings.Repeat("much\n", 40), Stderr: "little\n", BackendLog: "what the backend said\n"} {
		w, err := r.OpenLog(stream, 64) // of stdout a part is dropped
		if err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(text))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	refs = nil
	for _, name := range []string{"stdout.log", "stderr.log"} {
		ref, err := r.Ref(name)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	if err := r.Event(EventExecEnd, nil, refs...); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(r.OutputDir(), "report.json"), []byte(`{"rows":3}`))
	ref, err := r.Ref("output/report.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Event(EventOutputs, nil, ref); err != nil {
		t.Fatal(err)
	}
	if err := r.SetSandbox("web"); err != nil {
		t.Fatal(err)
	}
	finish(t, r)
	return r
}

// fullLoop is a finished loop that has every file that a loop can have, with two runs of which one is an attempt.
func fullLoop(t *testing.T, s *Store) *Run {
	t.Helper()
	l, err := s.CreateRun(NewRun{Kind: KindCycle, Name: "work", Definition: map[string]any{"task": "do it"}})
	if err != nil {
		t.Fatal(err)
	}
	var refs []FileRef
	for _, name := range []string{"0001.request.json", "0001.answer.json", "0001.tool-01.json"} {
		ref, err := l.WriteCall(name, []byte(`{"file":"`+name+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	part := func(data map[string]string, typ EventType, files ...FileRef) {
		t.Helper()
		r, err := s.CreateRun(NewRun{Name: "part", Parent: l.ID(), Definition: map[string]any{}})
		if err != nil {
			t.Fatal(err)
		}
		finish(t, r)
		data["run"], data["head"] = r.ID(), verify(t, s, r.ID()).Head
		if err := l.Event(typ, data, files...); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Event(EventState, map[string]string{"state": "coding"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Event(EventModelCall, map[string]int{"n": 1}, refs[:2]...); err != nil {
		t.Fatal(err)
	}
	part(map[string]string{"name": "run_command"}, EventToolCall, refs[2])
	part(map[string]string{"class": "ok"}, EventAttempt)
	finish(t, l)
	return l
}

// fullBox is a persistent sandbox whose record has every file that one can have.
func fullBox(t *testing.T, s *Store) SandboxInfo {
	t.Helper()
	r := beginBox(t, s, "web")
	ref, err := r.WriteCode("main.py", 0o644, strings.NewReader("print()\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Event(EventCode, nil, ref); err != nil {
		t.Fatal(err)
	}
	in, err := r.InputDir()
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(in, "secret.txt"), []byte("hunter2"))
	if err := r.NewBase(func(w io.Writer) error { _, err := io.WriteString(w, "what the project was like"); return err }); err != nil {
		t.Fatal(err)
	}
	if err := r.PlaceBase(); err != nil {
		t.Fatal(err)
	}
	if err := r.WritePrivate(map[string]string{"TOKEN": "hunter2"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Update(func(i *SandboxInfo) { i.State, i.Handle = SandboxReady, json.RawMessage(`{}`) }); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(r.Dir(), filesLockFile), nil)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return r.Info()
}

// TestEveryByteOfEveryFileShows flips, cuts, lengthens, empties and removes every file of a finished run, of a loop of
// a model and of the record of a persistent sandbox, and puts another one beside it: each time there is something to be
// reported. With -short it is a sample of the bytes.
func TestEveryByteOfEveryFileShows(t *testing.T) {
	s := newStore(t)
	run, loop, box := fullRun(t, s), fullLoop(t, s), fullBox(t, s)
	for dir, look := range map[string]func() *Report{
		run.Dir():  func() *Report { return verify(t, s, run.ID()) },
		loop.Dir(): func() *Report { return verify(t, s, loop.ID()) },
		s.paths.Sandbox(box.ID): func() *Report {
			rep, err := s.VerifySandbox(t.Context(), box.ID)
			if err != nil {
				t.Fatal(err)
			}
			return rep
		},
	} {
		if rep := look(); !rep.OK || len(rep.Findings) > 0 {
			t.Fatalf("intact: %+v", rep)
		}
		names := filesBelow(t, dir)
		if want := 4; len(names) < want {
			t.Fatalf("%s has %v", dir, names)
		}
		for _, name := range names {
			path := filepath.Join(dir, filepath.FromSlash(name))
			good := mustRead(t, path)
			was, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			shows := func(what string, at int) {
				t.Helper()
				if rep := look(); len(rep.Findings) == 0 {
					t.Errorf("%s %s at %d of %d: nothing is found", name, what, at, len(good))
				}
			}
			for i := 0; i < len(good); i += 1 + len(good)*stride()/120 {
				bad := bytes.Clone(good)
				bad[i] ^= 1 << (i % 8)
				mustWrite(t, path, bad)
				shows("flipped", i)
				mustWrite(t, path, good[:i])
				shows("cut", i)
			}
			for _, tail := range []string{"x", "\n", "\x00", "{}\n"} {
				mustWrite(t, path, append(bytes.Clone(good), tail...))
				shows("longer by "+tail, len(good))
			}
			if name != sandboxLockFile && name != filesLockFile { // they are recreated when they are missing
				os.Remove(path)
				if name == sandboxFile { // no sandbox is there without it, which the audit chain notices
					if rep := verifyAll(t, s)[""]; rep.OK {
						t.Errorf("%s removed: %+v", name, rep)
					}
				} else {
					shows("removed", 0)
				}
			}
			mustWrite(t, path, good)
			os.Chmod(path, was.Mode())
			mustWrite(t, path+".more", nil)
			shows("has a sibling", 0)
			os.Remove(path + ".more")
		}
		if rep := look(); !rep.OK || len(rep.Findings) > 0 {
			t.Fatalf("put right again: %+v", rep)
		}
	}
}

// filesBelow lists the files below dir by their slash paths.
func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	if err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// TestVerifySandboxesBesideWriters: sandboxes whose records change while they are verified are never called damaged.
func TestVerifySandboxesBesideWriters(t *testing.T) {
	s := newStore(t)
	info := fullBox(t, s)
	beside(t, 40, func(n int) error {
		r, err := s.OpenSandbox(t.Context(), info.ID, false, lockTimeout)
		if err == nil {
			err = r.Event(EventExecStart, n)
		}
		if err == nil {
			err = r.Update(func(i *SandboxInfo) { i.Network.Mode = sdk.NetworkMode(strings.Repeat("x", n%9)) })
		}
		if err == nil {
			err = r.Close()
		}
		return err
	}, func() {
		rep, err := s.VerifySandbox(t.Context(), info.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !rep.OK {
			t.Errorf("%+v", rep)
		}
	})
}

// beside looks again and again while two writers write, each so many times, a fifth of them with -short: how much there
// is to look at does not depend on which of them the machine prefers.
func beside(t *testing.T, times int, write func(n int) error, look func()) {
	t.Helper()
	if testing.Short() {
		times /= 5
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for n := range times {
				if err := write(n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	defer func() { <-done }()
	for {
		select {
		case <-done:
			look()
			return
		default:
			look()
		}
	}
}
