package visible

// Masked are the files and directories of /proc and /sys that describe the machine and what others do with it, its
// devices, memory, kernel and disks, and that no program in a sandbox needs. A backend lays an empty file or directory
// over each one that its commands would see.
var Masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/bus", "/proc/driver", "/proc/fs", "/proc/irq", "/proc/scsi",
	"/proc/interrupts", "/proc/softirqs", "/proc/iomem", "/proc/ioports", "/proc/diskstats", "/proc/partitions",
	"/proc/swaps",
	"/proc/cmdline", "/proc/config.gz", "/proc/kallsyms", "/proc/modules", "/proc/sysrq-trigger",
	"/proc/kcore", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/pagetypeinfo", "/proc/slabinfo",
	"/proc/vmallocinfo",
	"/proc/keys", "/proc/key-users", "/proc/latency_stats", "/proc/sched_debug", "/proc/timer_list", "/proc/timer_stats",
	"/sys/firmware", "/sys/devices/virtual/powercap",
}
