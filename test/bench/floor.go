package main

import "os"

// bwrap is the floor: bubblewrap started by hand, with the namespaces and the mounts that a sandbox of hutch has. A
// workspace is bound, which is what comes nearest to an overlay without a copy in a bubblewrap before 0.11; without one
// it is an empty directory. What hutch has besides is its own doing and its own time: the overlay, the filter, the
// limits, the record.
func bwrap(workspace string, argv ...string) []string {
	args := []string{"bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
		"--cap-drop", "ALL", "--clearenv",
		"--setenv", "PATH", "/usr/bin:/bin", "--hostname", "hutch", "--ro-bind", "/usr", "/usr"}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if target, err := os.Readlink("/" + name); err == nil {
			args = append(args, "--symlink", target, "/"+name)
		} else if there("/" + name) {
			args = append(args, "--ro-bind", "/"+name, "/"+name)
		}
	}
	args = append(args, "--tmpfs", "/tmp", "--dir", "/run", "--dir", "/home", "--dir", "/var", "--symlink", "/tmp",
		"/var/tmp")
	for _, name := range []string{"alternatives", "ssl/certs", "ca-certificates", "pki/tls", "pki/ca-trust",
		"ld.so.cache"} {
		if there("/etc/" + name) {
			args = append(args, "--ro-bind", "/etc/"+name, "/etc/"+name)
		}
	}
	args = append(args, "--dev", "/dev", "--tmpfs", "/dev/shm", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
	for _, name := range []string{"kcore", "keys", "timer_list", "sysrq-trigger", "latency_stats"} {
		if there("/proc/" + name) {
			args = append(args, "--ro-bind", "/dev/null", "/proc/"+name)
		}
	}
	if workspace != "" {
		args = append(args, "--bind", workspace, "/workspace")
	} else {
		args = append(args, "--tmpfs", "/workspace")
	}
	args = append(args, "--tmpfs", "/output", "--chdir", "/workspace", "--")
	return append(args, argv...)
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
