package store

import "sync"

// The audit chain of the store has one entry when a run begins, one when it ends and one when hutch removes it, and one
// for each change by hand to a persistent sandbox. It pins the head of each chain and the hash of each run's result, so that
// a run or sandbox whose whole directory was replaced, cut or taken away is noticed.

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
	Events       uint64 `json:"events"`
	Head         string `json:"head"`
	ResultSize   int64  `json:"result_size"`
	ResultSHA256 string `json:"result_sha256"`
	Record       string `json:"record"` // hash of the last line of run.jsonl; empty from versions that hashed none

	// Sandbox is how far the chain of the persistent sandbox went that the run was in. It costs no entry of its own.
	Sandbox *auditBox `json:"sandbox,omitempty"`
}

// auditBox names a persistent sandbox and how far its chain goes.
type auditBox struct {
	ID string `json:"id"`
	auditHead
}

// auditLog opens the audit chain when it is first needed.
type auditLog struct {
	path string

	mu    sync.Mutex
	chain *chain
}

// enter appends one entry; with sync it is on the disk afterwards.
func (s *Store) enter(sync bool, entries ...Event) error {
	c, err := s.audit.open(s)
	if err != nil {
		return err
	}
	if _, _, err := c.append(entries...); err != nil {
		return err
	}
	if sync {
		return c.sync()
	}
	return nil
}

// syncAudit forces the audit chain to the disk.
func (s *Store) syncAudit() error {
	c, err := s.audit.open(s)
	if err != nil {
		return err
	}
	return c.sync()
}

func (a *auditLog) open(s *Store) (*chain, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.chain == nil {
		c, err := openChain(a.path, s.now)
		if err != nil {
			return nil, err
		}
		a.chain = c
	}
	return a.chain, nil
}

func (a *auditLog) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.chain == nil {
		return nil
	}
	c := a.chain
	a.chain = nil
	return c.close()
}

func auditEntry(run string, typ EventType, data any) (Event, error) {
	b, err := marshalData(typ, data)
	return Event{Run: run, Type: typ, Data: b}, err
}
