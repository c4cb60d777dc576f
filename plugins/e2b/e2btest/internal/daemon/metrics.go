package daemon

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Metrics is the answer of GET /metrics. Sizes are bytes unless the name says otherwise.
type Metrics struct {
	Timestamp  int64   `json:"ts"` // seconds since 1970
	CPUCount   int     `json:"cpu_count"`
	CPUUsedPct float64 `json:"cpu_used_pct"` // of all CPUs together, since the last time
	MemTotal   uint64  `json:"mem_total"`
	MemUsed    uint64  `json:"mem_used"`
	MemCache   uint64  `json:"mem_cache"`
	MemTotalMi uint64  `json:"mem_total_mib"`
	MemUsedMi  uint64  `json:"mem_used_mib"`
	DiskUsed   uint64  `json:"disk_used"`
	DiskTotal  uint64  `json:"disk_total"`
}

func (d *Daemon) getMetrics(w http.ResponseWriter, _ *http.Request) {
	m := Metrics{Timestamp: time.Now().Unix(), CPUCount: runtime.NumCPU()}
	memory, err := meminfo()
	if err != nil {
		httpError(w, http.StatusInternalServerError, err)
		return
	}
	m.MemTotal, m.MemCache = memory["MemTotal"], memory["Cached"]
	m.MemUsed = m.MemTotal - memory["MemAvailable"]
	m.MemTotalMi, m.MemUsedMi = m.MemTotal>>20, m.MemUsed>>20
	var disk unix.Statfs_t
	if err := unix.Statfs("/", &disk); err != nil {
		httpError(w, http.StatusInternalServerError, fmt.Errorf("statfs /: %w", err))
		return
	}
	m.DiskTotal = disk.Blocks * uint64(disk.Bsize)
	m.DiskUsed = (disk.Blocks - disk.Bfree) * uint64(disk.Bsize)
	if m.CPUUsedPct, err = d.load.sample(); err != nil {
		httpError(w, http.StatusInternalServerError, err)
		return
	}
	writeJSON(w, http.StatusOK, m)
}

// meminfo returns /proc/meminfo in bytes.
func meminfo() (map[string]uint64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]uint64{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		key, rest, _ := strings.Cut(s.Text(), ":")
		if fields := strings.Fields(rest); len(fields) > 0 {
			if n, err := strconv.ParseUint(fields[0], 10, 64); err == nil {
				out[key] = n << 10
			}
		}
	}
	return out, s.Err()
}

// cpuLoad says how busy the CPUs were since it was last asked.
type cpuLoad struct {
	mu          sync.Mutex
	busy, total uint64
}

func (c *cpuLoad) sample() (pct float64, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	var busy, total uint64
	for i, f := range strings.Fields(line)[1:] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i < 8 { // the guests' time behind these is counted in them already
			total += n
			if i != 3 && i != 4 { // idle, iowait
				busy += n
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total != 0 && total > c.total {
		pct = 100 * float64(busy-c.busy) / float64(total-c.total)
	}
	c.busy, c.total = busy, total
	return pct, nil
}
