package main

import (
	"strings"

	"google.golang.org/grpc/encoding"
	encproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hutch-run/hutch/sdk"
)

// minor is the minor version of protocol 1 that this build speaks, set by the linker in tests: "older" is the first
// one, "newer" one that nobody knows yet, and "" today's.
var minor = ""

// speak makes the process speak its minor version. It must be called before anything is served.
func speak() {
	change := map[string]func(protoreflect.Message){"older": asFirst, "newer": asLater}[minor]
	if change != nil {
		encoding.RegisterCodecV2(&codec{encoding.GetCodecV2(encproto.Name), change})
	}
}

// codec changes every message of the contract on its way out.
type codec struct {
	encoding.CodecV2
	change func(protoreflect.Message)
}

const contract = "hutch.backend.v1."

func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(proto.Message); ok && strings.HasPrefix(string(m.ProtoReflect().Descriptor().FullName()), contract) {
		m = proto.Clone(m)
		c.change(m.ProtoReflect())
		v = m
	}
	return c.CodecV2.Marshal(v)
}

// within calls change with every message inside m.
func within(m protoreflect.Message, change func(protoreflect.Message)) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				change(v.List().Get(i).Message())
			}
		default:
			change(v.Message())
		}
		return true
	})
}

// first is a sandbox as the first version had it: what came later is out of sight, and so are its capabilities.
type first struct {
	sdk.Sandbox
	sdk.Inspector
	sdk.Putter
	sdk.Getter
	sdk.ChangeLister
	sdk.Resetter
}

// offered is the sandbox that the host gets to see.
func (s *sandbox) offered() sdk.Sandbox {
	if minor == "older" {
		return &first{s, s, s, s, s, s}
	}
	return s
}

// asFirst takes away the fields that the first version did not have.
func asFirst(m protoreflect.Message) {
	if m.Descriptor().FullName() == contract+"Ready" {
		for _, name := range []protoreflect.Name{"layers", "exchange"} {
			m.Clear(m.Descriptor().Fields().ByName(name))
		}
	}
	within(m, asFirst)
}

// asLater adds what nobody knows yet: fields everywhere, capabilities and other names, and a kind of event.
func asLater(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	switch m.Descriptor().FullName() {
	case contract + "DescribeResponse":
		for field, name := range map[protoreflect.Name]string{
			"capabilities": "teleport", "limits": "patience", "workspaces": "mirror", "networks": "neighbours",
			"formats": "hologram",
		} {
			m.Mutable(fields.ByName(field)).List().Append(protoreflect.ValueOfString(name))
		}
	case contract + "CreateEvent":
		m.Clear(fields.ByName("progress")) // what is left has no kind but the unknown one
	}
	within(m, asLater)
	b := protowire.AppendTag(m.GetUnknown(), 4000, protowire.BytesType)
	m.SetUnknown(protowire.AppendString(b, "from the future"))
}
