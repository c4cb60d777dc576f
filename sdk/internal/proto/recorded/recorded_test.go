// Package recorded holds messages of protocol 1 as they were once put on the wire, and checks that they still mean the
// same.
package recorded

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

var update = flag.Bool("update", false, "record messages that are not recorded yet; what is recorded is never changed")

const file = "testdata/protocol1.json"

// message is one recorded message.
type message struct {
	Name string          `json:"name"` // of its type
	Wire string          `json:"wire"` // hex
	JSON json.RawMessage `json:"json"` // what it meant
}

// TestProtocol1 reads every recorded message as today's code does: each field that was sent then is known now, by the
// same number, type and name.
func TestProtocol1(t *testing.T) {
	raw, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	var all []message
	if err := json.Unmarshal(raw, &all); err != nil && !*update {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range all {
		seen[m.Name] = true
		t.Run(m.Name, func(t *testing.T) {
			wire, err := hex.DecodeString(m.Wire)
			if err != nil {
				t.Fatal(err)
			}
			kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(m.Name))
			if err != nil {
				t.Fatalf("protocol 1 had this message: %v", err)
			}
			got := kind.New().Interface()
			if err := proto.Unmarshal(wire, got); err != nil {
				t.Fatal(err)
			}
			lost(t, got.ProtoReflect())
			if d := cmp.Diff(compact(t, m.JSON), meaning(t, got)); d != "" {
				t.Errorf("it means something else now (-recorded +now)\n%s", d)
			}
		})
	}
	messages := pb.File_hutch_backend_v1_backend_proto.Messages()
	for i := range messages.Len() {
		d := messages.Get(i)
		if seen[string(d.FullName())] {
			continue
		}
		if !*update {
			t.Errorf("%s is not recorded: run go test ./sdk/internal/proto/recorded -update", d.FullName())
			continue
		}
		kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			t.Fatal(err)
		}
		m := kind.New()
		n := 0
		fill(m, &n, 0)
		wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Interface())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, message{string(d.FullName()), hex.EncodeToString(wire), json.RawMessage(meaning(t, m.Interface()))})
	}
	if *update {
		out, err := json.MarshalIndent(all, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(out, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// lost reports bytes of a message that nothing in today's proto stands for.
func lost(t *testing.T, m protoreflect.Message) {
	t.Helper()
	if u := m.GetUnknown(); len(u) > 0 {
		t.Errorf("%s: %d bytes are not known any more", m.Descriptor().FullName(), len(u))
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				lost(t, v.List().Get(i).Message())
			}
		default:
			lost(t, v.Message())
		}
		return true
	})
}

func meaning(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return compact(t, b)
}

// compact takes out the blanks that the library varies on purpose.
func compact(t *testing.T, b []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// fill gives every field its own value; of a oneof, the last member stays.
func fill(m protoreflect.Message, n *int, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			key := protoreflect.ValueOfString("key").MapKey()
			m.Mutable(f).Map().Set(key, protoreflect.ValueOfString("value"))
		case f.IsList() && f.Message() != nil:
			if depth < 3 {
				fill(m.Mutable(f).List().AppendMutable().Message(), n, depth+1)
			}
		case f.IsList():
			m.Mutable(f).List().Append(value(f, n))
		case f.Message() != nil:
			if depth < 3 {
				fill(m.Mutable(f).Message(), n, depth+1)
			}
		default:
			m.Set(f, value(f, n))
		}
	}
}

func value(f protoreflect.FieldDescriptor, n *int) protoreflect.Value {
	*n++
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(f.Enum().Values().Len() - 1).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(*n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(*n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(*n) << 33)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(*n) + 0.5)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(f.Name()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, byte(*n), 0xff})
	}
	panic("a kind of field that protocol 1 did not have: " + f.Kind().String())
}
