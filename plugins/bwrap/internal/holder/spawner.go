package holder

import (
	"os"
	"runtime"
	"sync"
)

// A holder dies with the *thread* that started it (PDEATHSIG), so all of them are
// started by one thread that lives as long as the plugin.
var (
	spawnerOnce sync.Once
	spawnerJobs chan func()
)

// startProcess is [os.StartProcess] on the spawner's thread.
func startProcess(name string, argv []string, attr *os.ProcAttr) (p *os.Process, err error) {
	spawnerOnce.Do(func() {
		spawnerJobs = make(chan func())
		go func() {
			runtime.LockOSThread()
			for job := range spawnerJobs {
				job()
			}
		}()
	})
	done := make(chan struct{})
	spawnerJobs <- func() {
		defer close(done)
		p, err = os.StartProcess(name, argv, attr)
	}
	<-done
	return p, err
}
