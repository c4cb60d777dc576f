package wire

import (
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEveryFieldIsCarried fills all fields there are, so that one which fields forgets shows.
func TestEveryFieldIsCarried(t *testing.T) {
	for _, m := range []message{&Request{}, &Reply{}} {
		n := 0
		fill(reflect.ValueOf(m).Elem(), &n)
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
		if err := unmarshal(marshal(m), got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, got); d != "" {
			t.Errorf("%T after the journey (-sent +received):\n%s", m, d)
		}
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
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
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

func TestZeroIsCarried(t *testing.T) {
	for _, m := range []message{&Request{}, &Reply{}, &Request{Setup: &Setup{}}} {
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
		if err := unmarshal(marshal(m), got); err != nil || !cmp.Equal(m, got) {
			t.Errorf("%+v became %+v, %v", m, got, err)
		}
	}
}

// FuzzUnmarshal sees to it that no message breaks its reader, and that what was read is written as it came.
func FuzzUnmarshal(f *testing.F) {
	f.Add(marshal(&Request{Setup: &Setup{Trees: []Tree{{At: "/usr", FD: 3}}, Args: []string{"a", ""}, CPUs: []int{0, 1}}}))
	f.Add(marshal(&Request{Exec: &Exec{ID: 7, Program: "/init", Block: true}}))
	f.Add([]byte{2, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		var r, again Request
		if unmarshal(data, &r) != nil {
			return
		}
		if err := unmarshal(marshal(&r), &again); err != nil || !cmp.Equal(r, again) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}
