package judge

import "os"

// Dir is a directory of this machine as a [Place]. The caller closes it.
type Dir struct{ *os.Root }

// Look implements [Place].
func (d Dir) Look(p string) Node {
	if p == "" {
		p = "."
	}
	fi, err := d.Lstat(p)
	if err != nil {
		return Node{}
	}
	return Node{There: true, Mode: fi.Mode()}
}

// Names implements [Place].
func (d Dir) Names(in string) []string {
	if in == "" {
		in = "."
	}
	f, err := d.Open(in)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return names
}
