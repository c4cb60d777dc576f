package store

// The audit chain of the store has one entry when a run begins, one when it ends and one when hutch removes it, and
// one for each change by hand to a persistent sandbox. It pins the head of each chain and the hash of each run's
// result, so that a run or sandbox whose whole directory was replaced, cut or taken away is noticed.

// auditBegin is the data of [EventBegin] in the audit chain.
type auditBegin struct {
	Head string `json:"head"` // hash of the run's first event
}

// auditHead is the data of [EventSandboxHead].
type auditHead struct {
	Events uint64 `json:"events"`
	Head   string `json:"head"` // hash of the sandbox's event of that number
}

// further is the one of two heads of a chain that lies further along.
func (h auditHead) further(o auditHead) auditHead {
	if o.Events > h.Events {
		return o
	}
	return h
}

// auditEnd is the data of [EventEnd] in the audit chain.
type auditEnd struct {
	auditHead
	ResultSize   int64  `json:"result_size"`
	ResultSHA256 string `json:"result_sha256"`

	// Sandbox is how far the chain of the persistent sandbox went that the run was in. It costs no entry of its own.
	Sandbox *auditBox `json:"sandbox,omitempty"`
}

// auditBox names a persistent sandbox and how far its chain goes.
type auditBox struct {
	ID string `json:"id"`
	auditHead
}

// enter appends an entry about a run or a sandbox to the audit chain.
func (s *Store) enter(typ EventType, id string, data any) error {
	b, err := marshalData(typ, data)
	if err == nil {
		_, _, err = s.audit.append(Event{Run: id, Type: typ, Data: b})
	}
	return err
}
