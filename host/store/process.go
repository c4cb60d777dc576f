package store

// Process identifies one process beyond the reuse of its number.
type Process struct {
	PID       int    `json:"pid"`
	Start     uint64 `json:"start"`            // start time in clock ticks since boot
	Boot      string `json:"boot"`             // the kernel's boot id
	Namespace string `json:"pid_ns,omitempty"` // the pid namespace that PID counts in
}

// Self identifies this process.
func Self() Process { return Process{} }

// Alive reports whether the process may still be running. A process of another pid namespace on this boot counts as
// alive, because its number says nothing here.
func (p Process) Alive() bool { return true }
