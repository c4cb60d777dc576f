package main

// peer compares a run with another sandbox that starts the same program on the same project without a network. Unlike
// hutch none of them keeps a record, has default limits, or leaves the project as it was.
func peer(argv func(b *bench, workspace string) ([]string, error)) func(*bench) (h, base sample, err error) {
	return func(b *bench) (h, base sample, err error) {
		ws, err := b.project("small", 5)
		if err != nil {
			return h, base, err
		}
		theirs, err := argv(b, ws)
		if err != nil {
			return h, base, err
		}
		h, base, err = interleave(b.rounds(40),
			b.command(b.hutch(), "run", "-q", "--backend", "bwrap", "--workspace", ws, "--", "true"), b.command(theirs...))
		base.what = theirs[0]
		return h, base, err
	}
}

// srt is Anthropic's sandbox-runtime, from npm.
func srt(*bench, string) ([]string, error) { return []string{"srt", "true"}, nil }

func firejail(_ *bench, ws string) ([]string, error) {
	return []string{"firejail", "--quiet", "--noprofile", "--net=none", "--seccomp", "--caps.drop=all", "--private=" + ws, "true"},
		nil
}

func podmanRun(b *bench, ws string) ([]string, error) {
	image, err := b.podmanImage()
	return []string{"podman", "run", "--rm", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
		"-v", ws + ":/workspace:O", image, "true"}, err
}
