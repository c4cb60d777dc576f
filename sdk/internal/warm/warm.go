// Package warm makes, before they are needed, what packages make at their first use and somebody would wait for.
package warm

import (
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// Messages makes the tables by which protobuf reads and writes the messages of every run, in the order in which a run
// meets them. All of them take a millisecond in a process that has just begun; both host and backend have that time,
// and a processor, while they wait for each other. A call does nothing when there was one before.
func Messages() { messages() }

var messages = sync.OnceFunc(func() {
	for _, m := range []proto.Message{
		&pb.PlanRequest{}, &pb.Mount{}, &pb.PlanResponse{}, &pb.Hold{},
		&pb.CreateRequest{}, &pb.CreateEvent{},
		&pb.ExecRequest{}, &pb.ExecEvent{},
		&pb.ChangesRequest{}, &pb.ChangesResponse{}, &pb.Change{},
		&pb.GetRequest{}, &pb.GetResponse{},
		&pb.DestroyRequest{}, &pb.DestroyResponse{},
		&pb.DrainRequest{}, &pb.DrainResponse{},
	} {
		touch(m)
	}
})

// touch has the tables of a message made, and those of the messages in it.
func touch(m proto.Message) {
	_ = proto.Size(m)
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Message() != nil && !f.IsMap() && !f.IsList() {
			touch(m.ProtoReflect().NewField(f).Message().Interface())
		}
	}
}
