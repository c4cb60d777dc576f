package review

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/gitindex"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// Base is what a project looked like at one time: a line for every path, and no contents. A path whose entry still
// looks the same was not touched since; the change time in it is one that no program can set. It does not change and
// is safe for concurrent use.
type Base struct {
	taken    time.Time
	complete bool
	entries  []Entry     // by path, byte by byte
	packed   *packedBase // the same, of a base that was read from a file
}

// Entry is what stood at one path of a project.
type Entry struct {
	overlay.Entry
	// Blob is git's name of the file's content, in bytes, where git's index vouched for it; else empty.
	Blob string
}

// list are the entries by path.
func (b *Base) list() []Entry {
	if b.packed != nil {
		return b.packed.entries()
	}
	return b.entries
}

// TakeBase looks at every path below dir, without following symbolic links and without reading a file but git's index.
// It takes some 3 ms for 1,000 files. A directory that cannot be read, and what is beyond a million entries or 128
// levels, is left out: see [Base.Complete].
func TakeBase(ctx context.Context, dir string) (*Base, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the project: %w", err)
	}
	defer root.Close()
	b := &Base{taken: time.Now()}
	s, err := overlay.Take(ctx, root, overlay.Options{})
	if s == nil {
		return nil, fmt.Errorf("look at the project %s: %w", dir, err)
	}
	if err != nil && !errors.Is(err, overlay.ErrTooMany) && !errors.Is(err, overlay.ErrUnreadable) {
		return nil, fmt.Errorf("look at the project %s: %w", dir, err)
	}
	b.complete = err == nil
	b.entries = make([]Entry, 0, s.Len())
	for e := range s.Entries() {
		b.entries = append(b.entries, Entry{Entry: e})
	}
	b.sort()
	vouch(dir, b.entries)
	return b, nil
}

func (b *Base) sort() {
	slices.SortFunc(b.entries, func(x, y Entry) int { return cmp.Compare(x.Path, y.Path) })
}

// Taken is when the base was taken.
func (b *Base) Taken() time.Time { return b.taken }

// Complete reports whether every path of the project is in the base. Where it is not, a path that is missing from the
// base counts as unknown, and what a sandbox did to it as a conflict unless the project lacks it too.
func (b *Base) Complete() bool { return b.complete }

// Len is the number of paths in the base.
func (b *Base) Len() int {
	if b.packed != nil {
		return b.packed.count
	}
	return len(b.entries)
}

// Lookup finds the entry of a path.
func (b *Base) Lookup(path string) (Entry, bool) {
	list := b.list()
	i := sort.Search(len(list), func(i int) bool { return list[i].Path >= path })
	if i < len(list) && list[i].Path == path {
		return list[i], true
	}
	return Entry{}, false
}

// lookups finds the entries of paths that are asked for in their order, byte by byte, without unpacking all. One that
// is asked for out of order is found as well, and costs that.
func (b *Base) lookups() func(path string) (Entry, bool) {
	if b == nil {
		return func(string) (Entry, bool) { return Entry{}, false }
	}
	if b.packed == nil {
		return b.Lookup
	}
	lines := b.packed.read()
	more, last := lines.next(), ""
	return func(path string) (Entry, bool) {
		if path < last {
			return b.Lookup(path)
		}
		last = path
		for more && string(lines.path) < path {
			more = lines.next()
		}
		if more && string(lines.path) == path {
			return lines.named(), true
		}
		return Entry{}, false
	}
}

// with is the base with other entries at some paths, the zero Entry for nothing.
func (b *Base) with(fresh map[string]Entry) *Base {
	out := &Base{taken: b.taken, complete: b.complete}
	for _, e := range b.list() {
		if _, ok := fresh[e.Path]; !ok {
			out.entries = append(out.entries, e)
		}
	}
	for _, e := range fresh {
		if e.Path != "" {
			out.entries = append(out.entries, e)
		}
	}
	out.sort()
	return out
}

// Without is the base without the given paths: what stands there counts as changed in the project.
func (b *Base) Without(paths []string) *Base {
	gone := make(map[string]bool, len(paths))
	for _, p := range paths {
		gone[p] = true
	}
	out := &Base{taken: b.taken, complete: b.complete}
	for _, e := range b.list() {
		if !gone[e.Path] {
			out.entries = append(out.entries, e)
		}
	}
	return out
}

// entryOf is the entry for what stands at a path; the zero Entry for nothing.
func entryOf(path string, n Node, id ident) overlay.Entry {
	e := overlay.Entry{Path: path, Mode: modeOf(n.Mode), Size: n.Size, Mtime: id.Mtime, Ctime: id.Ctime, Ino: id.Ino, Link: n.Link}
	switch n.Type {
	case Nothing:
		return overlay.Entry{}
	case Directory:
		e.Mode |= fs.ModeDir
	case Symlink:
		e.Mode |= fs.ModeSymlink
	case Special:
		e.Mode |= fs.ModeIrregular
	}
	return e
}

// base is the base of a sandbox; nil without one.
func (l *Ledger) base(sandbox string) (*Base, error) {
	if l.bases == nil || sandbox == "" {
		return nil, nil
	}
	return ReadBase(l.bases.SandboxBase(sandbox))
}

// rebase writes into the sandbox's base what the steps of a journal did to the project, or, with back, what taking them
// back did. What an apply brought is what both sides have in common now. A file that was restored is another inode with
// another change time than the base has, although its content is what the base vouched for: it gets its new stat, so
// that it does not count as changed. What was in conflict before is in conflict again.
func (l *Ledger) rebase(j *journal, project *dir, back bool) error {
	if l.bases == nil {
		return nil
	}
	e := &engine{project: project}
	fresh := map[string]Entry{}
	type restored struct {
		ident ident // that it had
		entry Entry
	}
	files := map[string]restored{}
	for _, s := range j.Steps {
		at := string(s.Path)
		now, id, err := project.look(at)
		if err != nil {
			return fmt.Errorf("look at %s in the project: %w", Quote(at), err)
		}
		entry := Entry{Entry: entryOf(at, now, id)}
		want, was := s.New, s.Was
		if back {
			want, was = s.Old, s.Base
		}
		if !back && j.Undoes == "" {
			if !s.Settled || !s.part {
				fresh[at] = entry
			}
			continue
		}
		same := now.Mode == want.Mode && e.equal(&move{path: at}, want, now, id)
		if same && want.Type == File {
			files[at] = restored{want.Ident, entry}
		}
		switch {
		case was == nil:
		case same && was.vouches(at, want):
			entry.Blob = string(was.Blob)
			fresh[at] = entry
		default:
			fresh[at] = was.entry(at)
		}
	}
	err := l.rewrite(j.SandboxID, func(*Base) map[string]Entry { return fresh })
	if len(files) == 0 {
		return err
	}
	// The other sandboxes of the project know the restored files as they were, too.
	others, oerr := l.bases.SandboxesOf(j.Project)
	err = errors.Join(err, oerr)
	for _, id := range others {
		if id == j.SandboxID {
			continue
		}
		err = errors.Join(err, l.rewrite(id, func(b *Base) map[string]Entry {
			fresh := map[string]Entry{}
			for at, r := range files {
				if e, known := b.Lookup(at); known && !touched(e.Entry, true, Node{Type: File, Size: r.ident.Size}, r.ident) {
					fresh[at] = Entry{r.entry.Entry, e.Blob}
				}
			}
			return fresh
		}))
	}
	return err
}

// rewrite changes some entries of a sandbox's base; a sandbox without one is left alone.
func (l *Ledger) rewrite(id string, change func(*Base) map[string]Entry) error {
	b, err := l.base(id)
	if err != nil || b == nil {
		return err
	}
	fresh := change(b)
	if len(fresh) == 0 {
		return nil
	}
	file := l.bases.SandboxBase(id)
	f, err := os.OpenFile(file+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = b.with(fresh).Save(f)
	if err == nil && !l.noSync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(file+".new"))
	}
	return l.bases.PlaceSandboxBase(id)
}

// vouches reports whether the project's version s was untouched since the base was taken.
func (b *baseState) vouches(path string, s state) bool {
	return !touched(b.entry(path).Entry, !b.None, Node{Type: s.Type, Mode: s.Mode, Size: s.Size, Link: string(s.Link)}, s.Ident)
}

// ReadBase reads a base from a file; nil for one that is not there.
func ReadBase(file string) (*Base, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return LoadBase(f)
}

// WriteBase takes the base of a directory and writes it: what run.Options.TakeBase wants.
func WriteBase(ctx context.Context, dir string, w io.Writer) error {
	b, err := TakeBase(ctx, dir)
	if err != nil {
		return err
	}
	return b.Save(w)
}

// A base on disk is a line that names the format, then integers as varints and strings with their length, paths by what
// they share with the one before, times as the difference to the one before, and a checksum. It takes 10 to 40 bytes a
// path, and 20 or 32 more where git's index vouched for the content.
const baseMagic = "hutch.base/v2\n"

// Bounds of what LoadBase accepts.
const (
	maxBasePath    = 4096 // bytes of a path, and of a symbolic link's target
	maxBaseEntries = overlay.DefaultMaxEntries
	maxBaseBytes   = 256 << 20
	maxBlobName    = sha256.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Save writes the base in the format that [LoadBase] reads.
func (b *Base) Save(w io.Writer) error {
	buf := bufio.NewWriterSize(w, 64<<10)
	sum := crc32.New(castagnoli)
	e := &baseWriter{w: io.MultiWriter(buf, sum)}
	e.raw([]byte(baseMagic))
	complete := uint64(0)
	if b.complete {
		complete = 1
	}
	e.uint(complete)
	e.int(b.taken.UnixNano())
	list := b.list()
	e.uint(uint64(len(list)))
	var prev Entry
	for _, n := range list {
		shared := sharedPrefix(prev.Path, n.Path)
		e.uint(uint64(shared))
		e.string(n.Path[shared:])
		e.uint(uint64(n.Mode))
		e.uint(uint64(n.Size))
		e.int(n.Mtime - prev.Mtime)
		e.int(n.Ctime - prev.Ctime)
		e.int(int64(n.Ino - prev.Ino))
		switch n.Mode.Type() {
		case fs.ModeSymlink:
			e.string(n.Link)
		case 0:
			e.string(n.Blob)
		}
		e.flush()
		prev = n
	}
	e.flush()
	if e.err == nil {
		_, e.err = buf.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	}
	if e.err == nil {
		e.err = buf.Flush()
	}
	if e.err != nil {
		return fmt.Errorf("write the base: %w", e.err)
	}
	return nil
}

// LoadBase reads what [Base.Save] wrote: at most 256 MiB, which is more than a million entries take.
func LoadBase(r io.Reader) (*Base, error) {
	var raw bytes.Buffer
	if f, ok := r.(*os.File); ok {
		if fi, err := f.Stat(); err == nil && fi.Size() <= maxBaseBytes {
			raw.Grow(int(fi.Size()) + bytes.MinRead) // so that it is not read into ever larger pieces
		}
	}
	if _, err := raw.ReadFrom(io.LimitReader(r, maxBaseBytes+1)); err != nil {
		return nil, fmt.Errorf("read the base: %w", err)
	}
	b, err := decodeBase(raw.Bytes())
	if err != nil {
		return nil, fmt.Errorf("read the base: %w", err)
	}
	return b, nil
}

// baseWriter encodes into a buffer that is written an entry at a time. The first error stays.
type baseWriter struct {
	w   io.Writer
	buf []byte
	err error
}

func (e *baseWriter) raw(p []byte)    { e.buf = append(e.buf, p...) }
func (e *baseWriter) uint(v uint64)   { e.buf = binary.AppendUvarint(e.buf, v) }
func (e *baseWriter) int(v int64)     { e.buf = binary.AppendVarint(e.buf, v) }
func (e *baseWriter) string(s string) { e.uint(uint64(len(s))); e.buf = append(e.buf, s...) }

func (e *baseWriter) flush() {
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

// baseReader decodes. The first error stays, and everything read after it is zero.
type baseReader struct {
	left []byte
	err  error
}

func (d *baseReader) uint(max uint64, what string) uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.left)
	switch {
	case n <= 0:
		d.err = io.ErrUnexpectedEOF
		return 0
	case v > max:
		d.err = fmt.Errorf("%s is %d, at most %d is allowed", what, v, max)
		return 0
	}
	d.left = d.left[n:]
	return v
}

func (d *baseReader) int() int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.left)
	if n <= 0 {
		d.err = io.ErrUnexpectedEOF
		return 0
	}
	d.left = d.left[n:]
	return v
}

func (d *baseReader) bytes(n uint64) []byte {
	if d.err != nil {
		return nil
	}
	if n > uint64(len(d.left)) {
		d.err = io.ErrUnexpectedEOF
		return nil
	}
	p := d.left[:n]
	d.left = d.left[n:]
	return p
}

const maxInt64 = 1<<63 - 1

// leastEntry is the size of the smallest entry in bytes, so that a number of entries that lies takes no memory.
const leastEntry = 8

func decodeBase(raw []byte) (*Base, error) {
	switch {
	case len(raw) > maxBaseBytes:
		return nil, fmt.Errorf("it has more than %d bytes", maxBaseBytes)
	case !bytes.HasPrefix(raw, []byte(baseMagic)):
		return nil, errors.New("it is of no format that this hutch knows")
	case len(raw) < len(baseMagic)+crc32.Size:
		return nil, io.ErrUnexpectedEOF
	}
	body, sum := raw[:len(raw)-crc32.Size], raw[len(raw)-crc32.Size:]
	if binary.LittleEndian.Uint32(sum) != crc32.Checksum(body, castagnoli) {
		return nil, errors.New("its checksum does not match: it is cut or damaged")
	}
	d := baseReader{left: body[len(baseMagic):]}
	b := &Base{complete: d.uint(1, "the flag") == 1}
	b.taken = time.Unix(0, d.int())
	b.packed = &packedBase{count: int(d.uint(min(maxBaseEntries, uint64(len(d.left))/leastEntry), "the number of entries"))}
	if d.err != nil {
		return nil, d.err
	}
	b.packed.lines = d.left
	all := b.packed.read()
	for all.next() {
	}
	switch {
	case all.d.err != nil:
		return nil, all.d.err
	case len(all.d.left) > 0:
		return nil, errors.New("there is more after its last entry")
	}
	return b, nil
}

// packedBase are the entries of a base as they are on disk, found good. Most of a large project's are never asked for.
type packedBase struct {
	count int
	lines []byte
	once  sync.Once
	list  []Entry
}

// entries unpacks all of them, once.
func (p *packedBase) entries() []Entry {
	p.once.Do(func() {
		p.list = make([]Entry, 0, p.count)
		for r := p.read(); r.next(); {
			p.list = append(p.list, r.named())
		}
	})
	return p.list
}

func (p *packedBase) read() *baseLines {
	return &baseLines{d: baseReader{left: p.lines}, count: p.count}
}

// baseLines goes through packed entries in the order of their paths.
type baseLines struct {
	d     baseReader
	count int           // that are still to come
	path  []byte        // of the entry
	blob  []byte        // of the entry
	entry overlay.Entry // without its path
}

// next goes on to the next entry; there is none after the last one, or after an error.
func (l *baseLines) next() bool {
	if l.count == 0 || l.d.err != nil {
		return false
	}
	l.count--
	first := l.path == nil
	shared := l.d.uint(uint64(len(l.path)), "a shared prefix")
	rest := l.d.bytes(l.d.uint(maxBasePath, "the length of a path"))
	if l.d.err != nil {
		return false
	}
	ordered := first || bytes.Compare(rest, l.path[shared:]) > 0
	l.path = append(l.path[:shared], rest...)
	fresh := bytes.LastIndexByte(l.path[:shared], '/') + 1 // the names before were looked at in the path before
	switch {
	case len(l.path) > maxBasePath || !localPath(string(l.path[fresh:])):
		l.d.err = fmt.Errorf("%.200q is no path below a project", l.path)
	case !ordered:
		l.d.err = fmt.Errorf("the entry %q is out of order", l.path)
	default:
		l.entry = l.d.entry(l.entry)
		if l.blob = nil; l.entry.Mode.Type() == 0 {
			l.blob = l.d.bytes(l.d.uint(maxBlobName, "the length of a content's name"))
		}
	}
	return l.d.err == nil
}

// named is the entry with its path.
func (l *baseLines) named() Entry {
	e := Entry{Entry: l.entry, Blob: string(l.blob)}
	e.Path = string(l.path)
	return e
}

// entry reads what follows a path.
func (d *baseReader) entry(prev overlay.Entry) overlay.Entry {
	var e overlay.Entry
	e.Mode = fs.FileMode(d.uint(1<<32-1, "a mode"))
	e.Size = int64(d.uint(maxInt64, "a size"))
	e.Mtime = prev.Mtime + d.int()
	e.Ctime = prev.Ctime + d.int()
	e.Ino = prev.Ino + uint64(d.int())
	if e.Mode.Type() == fs.ModeSymlink {
		e.Link = string(d.bytes(d.uint(maxBasePath, "the length of a link")))
	}
	return e
}

// localPath reports whether p is a clean relative path that names something below a directory.
func localPath(p string) bool {
	if strings.IndexByte(p, 0) >= 0 {
		return false
	}
	for more := true; more; {
		var name string
		if name, p, more = strings.Cut(p, "/"); name == "" || name == "." || name == ".." {
			return false
		}
	}
	return true
}

func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// vouch notes with each entry of dir git's name of its content, where the index of the repository that dir lies in says
// of a file which looked exactly like this what was in it. That is how git itself knows that a file is clean. Nothing
// is said where there is no index, or one that is not understood: the names are needed for merges alone.
func vouch(dir string, entries []Entry) {
	file, prefix, err := findIndex(dir)
	if err != nil || file == "" {
		return
	}
	x, err := gitindex.Open(file)
	if err != nil {
		return
	}
	at := 0
	for x.Next() {
		rel, ok := bytes.CutPrefix(x.Path, []byte(prefix))
		if !ok {
			continue
		}
		for at < len(entries) && entries[at].Path < string(rel) {
			at++
		}
		if at < len(entries) && entries[at].Path == string(rel) && isOf(x, entries[at]) {
			entries[at].Blob = string(x.ID)
		}
	}
	if x.Err != nil { // what came before it is not to be trusted either
		for i := range entries {
			entries[i].Blob = ""
		}
	}
}

// findIndex finds the index of the repository whose work tree dir lies in, and what its paths begin with there. file is
// empty where there is no repository.
func findIndex(dir string) (file, prefix string, err error) {
	if dir, err = filepath.Abs(dir); err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", "", err
	}
	for top := dir; ; top = filepath.Dir(top) {
		at := filepath.Join(top, ".git")
		if _, err := os.Lstat(at); err != nil {
			if top == filepath.Dir(top) {
				return "", "", nil
			}
			continue
		}
		if prefix, err = filepath.Rel(top, dir); err != nil {
			return "", "", err
		}
		if prefix += "/"; prefix == "./" {
			prefix = ""
		}
		file, err = gitindex.Of(at)
		return file, prefix, err
	}
}

// isOf reports whether the entry is about a file that looks as e does, and was written before the index was: what is
// written in the same moment, git itself compares.
func isOf(x *gitindex.Index, e Entry) bool {
	number := func(at int) uint32 { return binary.BigEndian.Uint32(x.Stat[at:]) }
	time := func(at int) int64 { return int64(number(at))*1e9 + int64(number(at+4)) }
	return !x.Conflicted && x.Mode>>12 == unix.S_IFREG>>12 && e.Mode.Type() == 0 && time(gitindex.StatMtime) == e.Mtime && time(gitindex.StatCtime) == e.Ctime && e.Mtime < x.Written &&
		number(gitindex.StatIno) == uint32(e.Ino) && e.Size <= maxText && int64(number(gitindex.StatSize)) == e.Size
}
