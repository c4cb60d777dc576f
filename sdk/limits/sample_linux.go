package limits

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// A Sampler holds the memory and disk limits of one sandbox where the kernel does not: it adds up what all processes of
// the sandbox use together, and kills the command that uses most once the sum is above the limit. It samples only while
// something is watched, and seldom while much is left, so that an idle command costs nothing that can be measured.
//
// Memory is what a memory cgroup would charge, without the page cache and without kernel memory other than page tables:
// private pages once each, however many processes share them after a fork, swap, files in the sandbox's memory file
// systems, memfds, and shared mappings. A private mapping counts by its pages in use and not by its size. A shared
// anonymous mapping counts by its size, because nobody outside can see how much of it is in use.
//
// Nobody sees what descriptors in flight hold, those that were sent through a socket and not received yet. A sandbox
// that keeps some in flight for doubtLooks samples is charged with what the machine's shared memory has grown since it
// had none, or since the command began: another process that fills shared memory meanwhile can have it killed, and no
// other sandbox.
//
// The fields must be set before the first Watch. Watch and End may be called concurrently.
type Sampler struct {
	Memory uint64 // bytes; 0 for no limit
	Disk   *Space // nil for no limit
	PIDs   int    // processes and threads of each command, only with Trees; 0 for no limit
	// Tmpfs are directories on the memory file systems of the sandbox, one each.
	Tmpfs []*os.File
	// Others lists the first processes of further process namespaces of the same sandbox, which count but cannot be
	// killed from here. It may be nil.
	Others func() []int
	// Trees says that commands have no process namespace of their own: init of a Watch returns a reaper of orphans, and
	// what counts is all below it.
	Trees bool

	mu      sync.Mutex
	watched map[*Watch]bool
	stop    chan struct{}
	others  others
	rounds  int
	forks   int // how many more processes a command may start, at the last look
}

// others is the machine's shared memory that is not the sandbox's, as far as that is known. While nothing is hidden it
// is known; but a look is no instant, and a program may pass descriptors on behind its back. So one look proves neither
// that something is hidden nor that nothing is.
type others struct {
	known        uint64 // bytes; the least that was seen since
	least        uint64 // in the looks that found nothing hidden
	clear, doubt int    // looks that found nothing hidden, and looks that found that too much may be
}

// How many looks settle it.
const (
	clearLooks = 4
	doubtLooks = 8
)

// The bounds of the interval between two samples. Within them it is the time in which the rest of the limit could be
// filled at fillRate by each processor, and at least costShare times what a sample takes.
const (
	MinInterval = 10 * time.Millisecond
	MaxInterval = 250 * time.Millisecond
	fillRate    = 4 << 30 // bytes a second
	forkRate    = 10_000  // processes a second
	costShare   = 5
	// fullEvery is how often shared memory is looked for although the machine as a whole has no more than before.
	fullEvery = 16
)

// Sampled is the mechanism of a Sampler, as results name it.
var Sampled = fmt.Sprintf("sampled every %d to %d ms", MinInterval.Milliseconds(), MaxInterval.Milliseconds())

// Watch is one command that is sampled.
type Watch struct {
	s    *Sampler
	init func() int
	kill func()
	over *Overrun
	peak uint64
}

// Watch samples a command until End. init returns the first process of the command's process namespace, as this process
// numbers it, and 0 while it is not known; kill ends the command with all its processes.
func (s *Sampler) Watch(init func() int, kill func()) *Watch {
	w := &Watch{s: s, init: init, kill: kill}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched == nil {
		s.watched = map[*Watch]bool{}
	}
	s.watched[w] = true
	if len(s.watched) == 1 {
		s.stop = make(chan struct{})
		s.others = others{known: math.MaxUint64}
		go s.loop(s.stop)
	}
	return w
}

// End stops watching, and returns the limit for which the command was killed, nil for none, and the most memory that
// all commands of the sandbox were seen to use meanwhile.
func (w *Watch) End() (over *Overrun, peak uint64) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched[w] {
		delete(s.watched, w)
		if len(s.watched) == 0 {
			close(s.stop)
		}
	}
	return w.over, w.peak
}

func (s *Sampler) loop(stop chan struct{}) {
	interval, last := s.next(s.limit(), 0), time.Now()
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		s.mu.Lock()
		select {
		case <-stop: // nothing is watched any more, or somebody else's loop has begun
			s.mu.Unlock()
			return
		default:
		}
		began := time.Now()
		room := s.sample(began.Sub(last))
		s.mu.Unlock()
		last = began
		timer.Reset(s.next(room, time.Since(began)))
	}
}

// next is the time to the next sample, with so many bytes left and the last sample having taken so long.
func (s *Sampler) next(room uint64, cost time.Duration) time.Duration {
	fill := MaxInterval
	if rate := uint64(fillRate * runtime.NumCPU()); room < rate/4 { // of a second, which is MaxInterval
		fill = time.Duration(room) * time.Second / time.Duration(rate)
	}
	if s.PIDs > 0 {
		fill = min(fill, time.Duration(s.forks)*time.Second/time.Duration(forkRate*runtime.NumCPU()))
	}
	return min(max(fill, MinInterval, costShare*cost), MaxInterval)
}

// limit is the smallest one in bytes.
func (s *Sampler) limit() uint64 {
	least := uint64(math.MaxUint64)
	if s.Memory > 0 {
		least = s.Memory
	}
	if s.Disk != nil {
		least = min(least, s.Disk.Bytes)
	}
	return least
}

// sample looks once, and returns how many bytes are left of the limit that is nearest.
func (s *Sampler) sample(after time.Duration) (room uint64) {
	var spaces []*namespace
	defer func() {
		for _, n := range spaces {
			n.close()
		}
	}()
	open := func(init int, w *Watch) {
		for _, n := range spaces {
			if n.init == init {
				return
			}
		}
		if n := s.open(init); n != nil {
			n.watch = w
			spaces = append(spaces, n)
		}
	}
	for w := range s.watched {
		if w.over == nil {
			open(w.init(), w)
		}
	}
	if s.Others != nil {
		for _, init := range s.Others() {
			open(init, nil)
		}
	}
	s.rounds++
	var files, names uint64 // bytes in, and number of, the files in memory
	for _, f := range s.Tmpfs {
		var st unix.Statfs_t
		if unix.Fstatfs(int(f.Fd()), &st) == nil {
			files += (st.Blocks - st.Bfree) * uint64(st.Bsize)
			names += st.Files - st.Ffree
		}
	}
	s.count(spaces, after)
	room = math.MaxUint64
	if s.Disk != nil {
		var over *Overrun
		if over, room = s.Disk.exceeded(files, names, spaces, s.devices()); over != nil {
			over.After = after
			for w := range s.watched {
				s.end(w, over)
			}
		}
	}
	if s.Memory == 0 {
		return room
	}
	used, hidden, note := s.used(files, spaces)
	for w := range s.watched {
		w.peak = max(w.peak, used)
	}
	if used <= s.Memory {
		return min(room, s.Memory-min(used+hidden, s.Memory))
	}
	var most *namespace
	for _, n := range spaces {
		if n.watch != nil && (most == nil || n.private > most.private) {
			most = n
		}
	}
	if most == nil {
		return 0
	}
	for w := range s.watched { // commands that share a namespace cannot be distinguished
		if w.init() == most.init {
			s.end(w, &Overrun{Limit: Memory, Used: used, Asked: s.Memory, Unit: "bytes", After: after, Note: note})
		}
	}
	return 0
}

// count ends the commands that have too many processes and threads.
func (s *Sampler) count(spaces []*namespace, after time.Duration) {
	s.forks = s.PIDs
	for _, n := range spaces {
		if s.PIDs == 0 || n.watch == nil {
			continue
		}
		tasks := 0
		for _, pid := range n.pids {
			threads, _ := n.list(pid + "/task")
			tasks += len(threads)
		}
		if tasks > s.PIDs {
			s.end(n.watch, &Overrun{Limit: PIDs, Used: uint64(tasks), Asked: uint64(s.PIDs), Unit: "processes and threads",
				After: after})
		}
		s.forks = min(s.forks, max(s.PIDs-tasks, 0))
	}
}

// devices names the memory file systems as /proc does.
func (s *Sampler) devices() map[string]bool {
	out := map[string]bool{}
	for _, f := range s.Tmpfs {
		var st unix.Stat_t
		if unix.Fstat(int(f.Fd()), &st) == nil {
			out[device(st.Dev)] = true
		}
	}
	return out
}

func device(dev uint64) string { return fmt.Sprintf("%02x:%02x", unix.Major(dev), unix.Minor(dev)) }

func (s *Sampler) end(w *Watch, over *Overrun) {
	if w.over == nil {
		w.over = over
		w.kill()
	}
}

// used adds up the memory of all processes: cheaply and from above at first, and exactly only where that is too much.
// hidden is how much more it may be.
func (s *Sampler) used(files uint64, spaces []*namespace) (used, hidden uint64, note string) {
	all := field(readFile("/proc/meminfo"), "Shmem:") // of the whole machine
	rest := all - min(files, all)
	s.others.known = min(s.others.known, rest)
	grown := rest - s.others.known
	var private uint64
	for _, n := range spaces {
		n.private = 0
		for _, pid := range n.pids {
			status := n.read(pid + "/status")
			n.private += field(status, "RssAnon:") + field(status, "VmSwap:") + field(status, "VmPTE:")
		}
		private += n.private
	}
	if private+files+grown <= s.Memory && s.rounds%fullEvery != 0 {
		return private + files, 0, ""
	}
	o := openFiles(spaces, s.devices())
	shared := o.memory
	switch {
	case o.inFlight == 0:
		s.others.without(rest - min(shared, rest))
	case private+files+shared <= s.Memory && private+files+grown > s.Memory:
		if s.others.doubt++; s.others.doubt < doubtLooks {
			return private + files + shared, grown, ""
		}
		shared = grown
		note = fmt.Sprintf("%d descriptors lie in sockets or in processes that cannot be read, where nobody sees what "+
			"they hold, and the machine's shared memory has grown by %d bytes", o.inFlight, grown)
	}
	if private+files+shared <= s.Memory {
		return private + files + shared, 0, ""
	}
	private = 0
	for _, n := range spaces {
		n.private = 0
		for _, pid := range n.pids {
			rollup := n.read(pid + "/smaps_rollup")
			n.private += field(rollup, "Pss_Anon:") + field(rollup, "SwapPss:")
			status := n.read(pid + "/status")
			n.private += field(status, "VmPTE:")
			if len(rollup) == 0 {
				n.private += field(status, "RssAnon:") + field(status, "VmSwap:")
			}
		}
		private += n.private
	}
	return private + files + shared, 0, note
}

// without takes note of a look that found nothing hidden.
func (o *others) without(bytes uint64) {
	if o.clear++; o.clear == 1 || bytes < o.least {
		o.least = bytes
	}
	if o.clear == clearLooks {
		*o = others{known: o.least}
	}
}

// namespace is the processes of one process namespace, as the namespace's own /proc shows them.
type namespace struct {
	init    int
	dir     *os.File
	pids    []string
	tree    bool // of a reaper
	watch   *Watch
	private uint64 // bytes
	buf     []byte
}

// open returns the processes of a command; nil when there are none.
func (s *Sampler) open(init int) *namespace {
	if s.Trees {
		return openTree(init)
	}
	return openNamespace(init)
}

// openTree returns the processes below reaper.
func openTree(reaper int) *namespace {
	if reaper <= 0 {
		return nil
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	n := &namespace{init: reaper, dir: dir, tree: true}
	for _, pid := range descendants.Of(reaper) {
		n.pids = append(n.pids, strconv.Itoa(pid))
	}
	return n
}

// openNamespace returns nil for a namespace that is gone, or not made yet.
func openNamespace(init int) *namespace {
	if init <= 0 {
		return nil
	}
	dir, err := os.Open(fmt.Sprintf("/proc/%d/root/proc", init))
	if err != nil {
		return nil
	}
	n := &namespace{init: init, dir: dir}
	// A process that is not in the namespace is no process of that /proc; else it is still the one of the host.
	if err := unix.Faccessat(int(dir.Fd()), "self", unix.F_OK, 0); err == nil {
		n.close()
		return nil
	}
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if name[0] >= '1' && name[0] <= '9' {
			n.pids = append(n.pids, name)
		}
	}
	return n
}

func (n *namespace) close() { n.dir.Close() }

// read returns the content of a file, nothing if it is gone; it is overwritten by the next read.
func (n *namespace) read(name string) []byte {
	fd, err := unix.Openat(int(n.dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n.buf = n.buf[:0]
	for {
		if cap(n.buf)-len(n.buf) < 4096 {
			n.buf = append(n.buf, make([]byte, max(8192, len(n.buf)))...)[:len(n.buf)]
		}
		k, err := unix.Read(fd, n.buf[len(n.buf):cap(n.buf)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || k <= 0 {
			return n.buf
		}
		n.buf = n.buf[:len(n.buf)+k]
	}
}

// list returns the names in a directory, and whether this user may not look.
func (n *namespace) list(name string) (names []string, closed bool) {
	fd, err := unix.Openat(int(n.dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Is(err, unix.EACCES)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, _ = f.Readdirnames(-1)
	return names, false
}

func readFile(name string) []byte {
	b, _ := os.ReadFile(name)
	return b
}

// field returns the bytes that a line such as "RssAnon:  12 kB" names, 0 without such a line.
func field(text []byte, name string) uint64 {
	i := bytes.Index(text, []byte("\n"+name))
	if i < 0 {
		return 0
	}
	line, _, _ := bytes.Cut(text[i+1+len(name):], []byte("\n"))
	number, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	kb, _ := strconv.ParseUint(string(number), 10, 64)
	return kb << 10
}

// held is what processes keep without a name in any file system.
type held struct {
	memory   uint64 // bytes of memfds and of shared mappings
	disk     uint64 // bytes of files that were removed
	files    uint64 // how many of these
	inFlight int    // descriptors that were sent and not received yet, and processes that hide theirs
}

// inode is a file, by its device as /proc/PID/maps writes it.
type inode struct {
	dev string
	ino uint64
}

// removedMapping reads a line of /proc/PID/maps. It reports the file and the bytes of a mapping whose file was removed
// or never had a name, and whether that file is in memory. A program chooses the names of its files.
func removedMapping(line []byte) (id inode, size uint64, memory, ok bool) {
	if !bytes.HasSuffix(line, []byte(" (deleted)\n")) {
		return id, 0, false, false
	}
	// 7f68387d5000-7f683c7d5000 rw-s 00000000 00:01 1046      /dev/zero (deleted)
	f := bytes.Fields(line)
	if len(f) < 6 {
		return id, 0, false, false
	}
	from, to, _ := bytes.Cut(f[0], []byte("-"))
	a, err1 := strconv.ParseUint(string(from), 16, 64)
	b, err2 := strconv.ParseUint(string(to), 16, 64)
	ino, err3 := strconv.ParseUint(string(f[4]), 10, 64)
	if errors.Join(err1, err2, err3) != nil || b < a {
		return id, 0, false, false
	}
	memory = bytes.HasPrefix(f[5], []byte("/memfd:")) || bytes.HasPrefix(f[5], []byte("/SYSV")) ||
		bytes.Equal(f[5], []byte("/dev/zero"))
	return inode{string(f[3]), ino}, b - a, memory, true
}

// openFiles looks through the descriptors and the mappings of all processes. Every thread may have descriptors of its
// own. Files on the memory file systems tmpfs are left out, because these are known as a whole.
func openFiles(spaces []*namespace, tmpfs map[string]bool) (h held) {
	counted := map[inode]bool{}  // by a descriptor, exactly
	mapped := map[inode]uint64{} // by the size of the mapping
	inMemory := map[inode]bool{} // of those in mapped
	sockets := map[string]bool{}
	for _, n := range spaces {
		for _, pid := range n.pids {
			threads, _ := n.list(pid + "/task")
			for _, tid := range threads {
				dir := pid + "/task/" + tid + "/fd"
				fds, closed := n.list(dir)
				if closed && n.tree {
					h.inFlight++
				}
				for _, fd := range fds {
					var link [256]byte
					k, err := unix.Readlinkat(int(n.dir.Fd()), dir+"/"+fd, link[:])
					if err != nil {
						continue
					}
					target := string(link[:k])
					memory := strings.HasPrefix(target, "/memfd:")
					switch {
					case memory, strings.HasSuffix(target, " (deleted)"), k == len(link):
						var st unix.Stat_t
						if unix.Fstatat(int(n.dir.Fd()), dir+"/"+fd, &st, 0) != nil || st.Nlink > 0 && !memory ||
							st.Mode&unix.S_IFMT != unix.S_IFREG {
							continue
						}
						id := inode{device(st.Dev), st.Ino}
						if !counted[id] && !tmpfs[id.dev] {
							counted[id] = true
							if memory {
								h.memory += uint64(st.Blocks) * 512
							} else {
								h.disk += uint64(st.Blocks) * 512
								h.files++
							}
						}
					case strings.HasPrefix(target, "socket:") && !sockets[target]:
						sockets[target] = true
						h.inFlight += int(field(n.read(pid+"/task/"+tid+"/fdinfo/"+fd), "scm_fds:") >> 10)
					}
				}
			}
			for line := range bytes.Lines(n.read(pid + "/maps")) {
				if id, size, memory, ok := removedMapping(line); ok {
					mapped[id] = max(mapped[id], size)
					inMemory[id] = memory
				}
			}
		}
	}
	for id, size := range mapped {
		switch {
		case counted[id], tmpfs[id.dev]:
		case inMemory[id]:
			h.memory += size
		default:
			h.disk += size
			h.files++
		}
	}
	return h
}
