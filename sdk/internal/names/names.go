// Package names pairs the names that Go code uses with the enums of the wire.
//
// Both directions live here, so that the server half (package sdk) and the
// client half (package sdk/client) of the contract cannot drift apart. An enum
// that is not known becomes the empty string, and a name that is not known
// becomes UNSPECIFIED.
package names

import pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"

// table maps names to enum values and back.
type table[E comparable] struct {
	to   map[string]E
	from map[E]string
}

func newTable[E comparable](to map[string]E) table[E] {
	t := table[E]{to: to, from: make(map[E]string, len(to))}
	for name, e := range to {
		t.from[e] = name
	}
	return t
}

// To returns the enum of a name.
func (t table[E]) To(name string) E { return t.to[name] }

// From returns the name of an enum.
func (t table[E]) From(e E) string { return t.from[e] }

// The tables.
var (
	Reasons = newTable(map[string]pb.Failure_Reason{
		"config":      pb.Failure_REASON_CONFIG,
		"limit":       pb.Failure_REASON_LIMIT,
		"missing":     pb.Failure_REASON_MISSING,
		"unsupported": pb.Failure_REASON_UNSUPPORTED,
		"not_found":   pb.Failure_REASON_NOT_FOUND,
		"denied":      pb.Failure_REASON_DENIED,
		"quota":       pb.Failure_REASON_QUOTA,
		"unavailable": pb.Failure_REASON_UNAVAILABLE,
		"internal":    pb.Failure_REASON_INTERNAL,
	})
	Isolations = newTable(map[string]pb.Isolation{
		"none":      pb.Isolation_ISOLATION_NONE,
		"process":   pb.Isolation_ISOLATION_PROCESS,
		"namespace": pb.Isolation_ISOLATION_NAMESPACE,
		"container": pb.Isolation_ISOLATION_CONTAINER,
		"vm":        pb.Isolation_ISOLATION_VM,
		"remote-vm": pb.Isolation_ISOLATION_REMOTE_VM,
	})
	Severities = newTable(map[string]pb.Severity{
		"ok":      pb.Severity_SEVERITY_OK,
		"warning": pb.Severity_SEVERITY_WARNING,
		"error":   pb.Severity_SEVERITY_ERROR,
	})
	Nestings = newTable(map[string]pb.Block_Nesting{
		"single": pb.Block_NESTING_SINGLE,
		"list":   pb.Block_NESTING_LIST,
		"map":    pb.Block_NESTING_MAP,
	})
)
