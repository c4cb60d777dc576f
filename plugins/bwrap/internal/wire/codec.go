package wire

import (
	"encoding/binary"
	"errors"
)

// A message is written and read by the same methods: fields names each of its fields once, in order, to a codec, which
// either appends it to data or takes it from there. Both ends are the same binary, so nothing has to say which field is
// which; only the holder of a persistent sandbox can be of another version, and is ended when it does not understand.
// It does what encoding/json would, without the tables that package makes of every type when it meets it first: for a
// holder that lives for one command those took longer than its mounts.
type codec struct {
	data    []byte
	reading bool
	err     error // the first one; what is read afterwards is zero
}

// message is what a codec can carry.
type message interface{ fields(c *codec) }

var errShort = errors.New("a message between plugin and holder is cut off")

func marshal(m message) []byte {
	c := &codec{data: make([]byte, 0, 8<<10)}
	m.fields(c)
	return c.data
}

func unmarshal(data []byte, m message) error {
	c := &codec{data: data, reading: true}
	m.fields(c)
	if c.err == nil && len(c.data) > 0 {
		c.err = errors.New("a message between plugin and holder is too long")
	}
	return c.err
}

func (c *codec) fail() { c.data, c.err = nil, errShort }

func (c *codec) int64(v *int64) {
	if !c.reading {
		c.data = binary.AppendVarint(c.data, *v)
		return
	}
	x, n := binary.Varint(c.data)
	if n <= 0 {
		*v = 0
		c.fail()
		return
	}
	*v, c.data = x, c.data[n:]
}

func (c *codec) int(v *int) {
	x := int64(*v)
	c.int64(&x)
	*v = int(x)
}

func (c *codec) uint32(v *uint32) {
	x := int64(*v)
	c.int64(&x)
	*v = uint32(x)
}

func (c *codec) bool(v *bool) {
	x := int64(0)
	if *v {
		x = 1
	}
	c.int64(&x)
	*v = x != 0
}

// take cuts the next n bytes off; they stay part of the message's memory.
func (c *codec) take(n int64) []byte {
	if n < 0 || n > int64(len(c.data)) {
		c.fail()
		return nil
	}
	b := c.data[:n:n]
	c.data = c.data[n:]
	return b
}

func (c *codec) bytes(v *[]byte) {
	n := int64(len(*v))
	c.int64(&n)
	if !c.reading {
		c.data = append(c.data, *v...)
		return
	}
	*v = nil
	if b := c.take(n); len(b) > 0 {
		*v = append([]byte(nil), b...)
	}
}

// text carries strings and the types made of them.
func text[T ~string](c *codec, v *T) {
	n := int64(len(*v))
	c.int64(&n)
	if !c.reading {
		c.data = append(c.data, *v...)
		return
	}
	*v = T(c.take(n))
}

// list carries a slice; each carries one element.
func list[T any](c *codec, v *[]T, each func(c *codec, v *T)) {
	n := int64(len(*v))
	c.int64(&n)
	if c.reading {
		*v = nil
		if n < 0 || n > int64(len(c.data)) { // an element has a byte at least
			c.fail()
			return
		}
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		each(c, &(*v)[i])
	}
}

// optional carries a part of a message that may be missing.
func optional[T any](c *codec, v **T, fields func(v *T, c *codec)) {
	there := *v != nil
	c.bool(&there)
	if !there {
		*v = nil
		return
	}
	if c.reading {
		*v = new(T)
	}
	fields(*v, c)
}

func (r *Request) fields(c *codec) {
	optional(c, &r.Setup, (*Setup).fields)
	optional(c, &r.Exec, (*Exec).fields)
	c.bool(&r.PTY)
	c.bool(&r.Clear)
	c.int(&r.Dial)
	c.bool(&r.Join)
	c.bool(&r.End)
}

func (r *Reply) fields(c *codec) {
	text(c, &r.Err)
	c.bool(&r.Ready)
	c.bytes(&r.State)
	c.bool(&r.Dialled)
	text(c, &r.PTY)
	optional(c, &r.Spawned, (*Spawned).fields)
	optional(c, &r.Ended, (*Ended).fields)
}

func (s *Setup) fields(c *codec) {
	list(c, &s.Trees, func(c *codec, t *Tree) {
		text(c, &t.At)
		text(c, &t.Path)
		c.int(&t.FD)
		c.bool(&t.ReadOnly)
		c.bool(&t.Devices)
	})
	list(c, &s.Files, func(c *codec, f *File) {
		text(c, &f.Kind)
		text(c, &f.Path)
		c.uint32(&f.Mode)
		c.bool(&f.Own)
		c.bytes(&f.Data)
	})
	list(c, &s.Mounts, func(c *codec, m *Mount) {
		text(c, &m.Kind)
		text(c, &m.Source)
		text(c, &m.Target)
		text(c, &m.Data)
		c.bool(&m.ReadOnly)
	})
	list(c, &s.Freeze, text[string])
	c.int64(&s.Scratch)
	c.int64(&s.ScratchFiles)
	c.int(&s.BwrapFD)
	list(c, &s.Args, text[string])
	c.bytes(&s.Seccomp)
	list(c, &s.CPUs, (*codec).int)
	c.int(&s.UID)
	c.int(&s.GID)
	list(c, &s.Give, text[string])
	c.bool(&s.Filtered)
	list(c, &s.Loopback, (*codec).int)
	optional(c, &s.Persistent, func(l *Persistent, c *codec) {
		c.int(&l.Listen)
		c.int(&l.File)
		c.int(&l.Slot)
		c.bytes(&l.State)
	})
}

func (e *Exec) fields(c *codec) {
	c.id(&e.ID)
	text(c, &e.Program)
	c.bool(&e.Block)
}

func (s *Spawned) fields(c *codec) {
	c.id(&s.ID)
}

func (e *Ended) fields(c *codec) {
	c.id(&e.ID)
	c.int(&e.Status)
	c.int64(&e.UserUS)
	c.int64(&e.SysUS)
	c.int64(&e.MaxRSSKB)
}

func (c *codec) id(v *uint64) {
	x := int64(*v)
	c.int64(&x)
	*v = uint64(x)
}
