package wire

import (
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// message has a field of every type that messages have.
type message struct {
	Name  string
	Kind  kind
	Data  []byte
	Count int
	Size  int64
	Mode  uint32
	ID    uint64
	Ready bool
	Ports []int
	Args  []string
	Part  *part
	Parts []part
}

type kind string

type part struct {
	At    string
	Inner *part
}

// TestCarried has messages come back as they went in: full ones, empty ones, and none.
func TestCarried(t *testing.T) {
	full := message{Part: &part{Inner: &part{At: "deep"}}}
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)
	for _, m := range []message{full, {}, {Part: &part{}}, {Data: []byte{0}, Args: []string{"", "a"}}} {
		var got message
		if err := Unmarshal(Marshal(&m), &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, got); d != "" {
			t.Errorf("after the journey (-sent +received):\n%s", d)
		}
	}
	var got message
	for _, cut := range []int{0, 1, len(Marshal(&full)) - 1} {
		if Unmarshal(Marshal(&full)[:cut], &got) == nil {
			t.Errorf("%d bytes were taken for a message", cut)
		}
	}
	if Unmarshal(append(Marshal(&message{}), 0), new(message)) == nil {
		t.Error("a message with more behind it was taken")
	}
}

// fill gives every field below v a value that no other has.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer:
		if !v.IsNil() { // it can hold itself
			fill(v.Elem(), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range 3 {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(string(rune('a'+*n%26)) + "\x00ä")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	case reflect.Uint32:
		v.SetUint(math.MaxUint32 - uint64(*n))
	case reflect.Uint64:
		v.SetUint(math.MaxUint64 - uint64(*n))
	default:
		v.SetInt(-int64(*n))
	}
}

// FuzzUnmarshal sees to it that no message breaks its reader, and that what was read is written as it came.
func FuzzUnmarshal(f *testing.F) {
	f.Add(Marshal(&message{Name: "x", Parts: []part{{At: "/usr"}}, Args: []string{"a", ""}, Ports: []int{0, -1}}))
	f.Add([]byte{2, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		var m, again message
		if Unmarshal(data, &m) != nil {
			return
		}
		if err := Unmarshal(Marshal(&m), &again); err != nil || !cmp.Equal(m, again) {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}
