package table

import "slices"

// Test compares the bits of one argument that Mask names with Value. Arguments are looked at by their low 32 bits, as
// the kernel does with the ones in this table: comparing all 64 lets a call pass that has a high bit set
// (CVE-2019-10063). A pointer has more: Arg is high+N for the high 32 bits of argument N.
type Test struct {
	Arg         int
	Mask, Value uint32
}

const high = 6 // arguments of a call

// Cube is a conjunction of tests.
type Cube []Test

// Condition splits the arguments of a call in two: each list of arguments matches a cube of Allow or one of Refuse, and
// never of both. Both sides are spelled out because an OCI profile cannot say "otherwise".
type Condition struct {
	Text          string // for people: what is allowed
	Allow, Refuse []Cube
}

const all = ^uint32(0)

// clear allows an argument without these bits.
func clear(text string, arg int, bits uint32) *Condition {
	return &Condition{text, []Cube{{{arg, bits, 0}}}, anyBit(arg, bits)}
}

// clearWith allows an argument without these bits, or another argument without others.
func clearWith(text string, arg int, bits uint32, other int, otherBits uint32) *Condition {
	c := &Condition{Text: text, Allow: []Cube{{{arg, bits, 0}}, {{other, otherBits, 0}}}}
	for _, a := range anyBit(arg, bits) {
		for _, b := range anyBit(other, otherBits) {
			c.Refuse = append(c.Refuse, Cube{a[0], b[0]})
		}
	}
	return c
}

// oneOf allows these values of an argument.
func oneOf(text string, arg int, values ...uint32) *Condition {
	return &Condition{text, equal(arg, values), others(arg, values)}
}

// noneOf allows all but these values of an argument.
func noneOf(text string, arg int, values ...uint32) *Condition {
	return &Condition{text, others(arg, values), equal(arg, values)}
}

// or allows what c allows, and value of arg where other is otherValue; c must refuse that value.
func (c *Condition) or(arg int, value uint32, other int, otherValue uint32) *Condition {
	values := []uint32{value}
	for _, cube := range c.Allow {
		values = append(values, cube[0].Value)
	}
	c.Refuse = others(arg, values)
	c.Allow = append(c.Allow, Cube{{arg, all, value}, {other, all, otherValue}})
	for _, cube := range others(other, []uint32{otherValue}) {
		c.Refuse = append(c.Refuse, Cube{{arg, all, value}, cube[0]})
	}
	return c
}

// unlessCore allows prlimit64 of other resources than RLIMIT_CORE, and a call without new limits.
func unlessCore(text string) *Condition {
	c := &Condition{text, append(others(1, []uint32{rlimitCore}),
		Cube{{1, all, rlimitCore}, {2, all, 0}, {high + 2, all, 0}}), nil}
	for _, limits := range slices.Concat(anyBit(2, all), anyBit(high+2, all)) {
		c.Refuse = append(c.Refuse, Cube{{1, all, rlimitCore}, limits[0]})
	}
	return c
}

// and allows what c allows, where arg is value.
func (c *Condition) and(arg int, value uint32) *Condition {
	out := &Condition{Text: c.Text, Refuse: others(arg, []uint32{value})}
	for _, side := range []struct {
		from []Cube
		to   *[]Cube
	}{{c.Allow, &out.Allow}, {c.Refuse, &out.Refuse}} {
		for _, cube := range side.from {
			*side.to = append(*side.to, append(Cube{{arg, all, value}}, cube...))
		}
	}
	return out
}

func anyBit(arg int, bits uint32) (out []Cube) {
	for bit := uint32(1); bit != 0; bit <<= 1 {
		if bits&bit != 0 {
			out = append(out, Cube{{arg, bit, bit}})
		}
	}
	return out
}

func equal(arg int, values []uint32) (out []Cube) {
	for _, v := range values {
		out = append(out, Cube{{arg, all, v}})
	}
	return out
}

// others covers every value that is not in values: for each bit of each value, what shares the bits above it and
// differs in it, unless that is the beginning of another value.
func others(arg int, values []uint32) (out []Cube) {
	seen := map[Test]bool{}
	for _, v := range values {
		for bit := uint32(1) << 31; bit != 0; bit >>= 1 {
			t := Test{arg, ^(bit - 1), (v ^ bit) &^ (bit - 1)}
			taken := seen[t]
			for _, w := range values {
				taken = taken || w&t.Mask == t.Value
			}
			if !taken {
				seen[t] = true
				out = append(out, Cube{t})
			}
		}
	}
	return out
}
