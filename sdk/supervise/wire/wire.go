// Package wire encodes the messages that a backend and the programs which start its commands exchange over a
// [supervise.Socket]: structs of integers, bools, strings, slices and pointers. Both ends have the same types, so a
// message holds the values of the fields in order and nothing else. It does what encoding/json would, without the
// tables that package makes of every type when it meets it first: for a program that lives for one command those take
// longer than its work.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
)

// Marshal returns the encoding of the struct that m points to.
func Marshal(m any) []byte {
	return encode(make([]byte, 0, 8<<10), reflect.ValueOf(m).Elem())
}

func encode(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			b = encode(b, v.Field(i))
		}
		return b
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, 0)
		}
		return encode(append(b, 1), v.Elem())
	case reflect.Slice:
		b = binary.AppendUvarint(b, uint64(v.Len()))
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return append(b, v.Bytes()...)
		}
		for i := range v.Len() {
			b = encode(b, v.Index(i))
		}
		return b
	case reflect.String:
		return append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...)
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Int, reflect.Int64:
		return binary.AppendVarint(b, v.Int())
	case reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(b, v.Uint())
	}
	panic("wire: a message cannot hold a " + v.Type().String())
}

// errShort says that a message ends too early.
var errShort = errors.New("a message is cut off")

// Unmarshal decodes data into the struct that m points to, which must be zero. The data may be hostile: it is refused
// when it is too short or too long, and takes no more memory than its own length warrants.
func Unmarshal(data []byte, m any) error {
	rest, err := decode(data, reflect.ValueOf(m).Elem())
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("a message is %d bytes too long", len(rest))
	}
	return err
}

func decode(b []byte, v reflect.Value) (rest []byte, err error) {
	switch v.Kind() {
	case reflect.Struct:
		for i := 0; i < v.NumField() && err == nil; i++ {
			b, err = decode(b, v.Field(i))
		}
		return b, err
	case reflect.Int, reflect.Int64:
		x, n := binary.Varint(b)
		if n <= 0 {
			return nil, errShort
		}
		v.SetInt(x)
		return b[n:], nil
	}
	x, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, errShort
	}
	b = b[n:]
	switch v.Kind() {
	case reflect.Pointer:
		if x == 0 {
			return b, nil
		}
		v.Set(reflect.New(v.Type().Elem()))
		return decode(b, v.Elem())
	case reflect.Slice:
		return decodeSlice(b, v, x)
	case reflect.String:
		if x > uint64(len(b)) {
			return nil, errShort
		}
		v.SetString(string(b[:x]))
		return b[x:], nil
	case reflect.Bool:
		v.SetBool(x != 0)
		return b, nil
	case reflect.Uint32, reflect.Uint64:
		if v.OverflowUint(x) {
			return nil, fmt.Errorf("a message holds %d for a %s", x, v.Type())
		}
		v.SetUint(x)
		return b, nil
	}
	panic("wire: a message cannot hold a " + v.Type().String())
}

func decodeSlice(b []byte, v reflect.Value, n uint64) (rest []byte, err error) {
	if n == 0 {
		return b, nil
	}
	if n > uint64(len(b)) { // an element has at least a byte
		return nil, errShort
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		v.SetBytes(append([]byte(nil), b[:n]...))
		return b[n:], nil
	}
	v.Set(reflect.MakeSlice(v.Type(), int(n), int(n)))
	for i := 0; i < int(n) && err == nil; i++ {
		b, err = decode(b, v.Index(i))
	}
	return b, err
}
