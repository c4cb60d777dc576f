package model

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/units"
)

// Meter is a client that keeps to a budget.
type Meter struct {
	client Client
	budget Budget
	now    func() time.Time

	mu    sync.Mutex
	begin time.Time // of the first request
	spent Spent
}

// Spent is what a loop has used of its model.
type Spent struct {
	Usage
	// Turns are the answers that came, and those that were asked for and did not come.
	Turns int `json:"turns"`
	// Retries are the requests that were repeated.
	Retries int `json:"retries,omitempty"`
}

// Metered is a client that counts, and refuses with a [*BudgetError] once the budget is used up; its fields of 0 stand
// for the defaults. Tokens are known only after an answer, so the last answer may go beyond them. The time also ends an
// answer that is being given. Closing it closes c.
func Metered(c Client, b Budget) *Meter {
	return &Meter{client: c, budget: b.WithDefaults(), now: time.Now}
}

// Resume counts what was used before, and the time that it took.
func (m *Meter) Resume(s Spent, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent, m.begin = s, m.now().Add(-took)
}

// Spent is what was used so far.
func (m *Meter) Spent() Spent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spent
}

// Answer implements [Client].
func (m *Meter) Answer(ctx context.Context, r Request, delta func(text string)) (Answer, error) {
	left, err := m.take()
	if err != nil {
		return Answer{}, err
	}
	over := &BudgetError{What: "time", Used: m.budget.Time.String(), Limit: m.budget.Time.String()}
	bounded, cancel := context.WithTimeoutCause(ctx, left, over)
	defer cancel()
	a, err := m.client.Answer(bounded, r, delta)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent.Add(a.Usage)
	m.spent.Retries += a.Retries
	var budget *BudgetError
	if err != nil && ctx.Err() == nil && errors.As(context.Cause(bounded), &budget) {
		return a, over
	}
	return a, err
}

// take claims a turn, and says how much time is left for it.
func (m *Meter) take() (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if m.begin.IsZero() {
		m.begin = now
	}
	used := units.Duration(now.Sub(m.begin))
	tokens := m.spent.InputTokens + m.spent.OutputTokens
	switch {
	case m.spent.Turns >= m.budget.Turns:
		return 0, &BudgetError{What: "turns", Used: strconv.Itoa(m.spent.Turns), Limit: strconv.Itoa(m.budget.Turns)}
	case tokens >= m.budget.Tokens:
		return 0, &BudgetError{What: "tokens", Used: strconv.FormatInt(tokens, 10),
			Limit: strconv.FormatInt(m.budget.Tokens, 10)}
	case used >= m.budget.Time:
		return 0, &BudgetError{What: "time", Used: time.Duration(used).Round(time.Second).String(),
			Limit: m.budget.Time.String()}
	}
	m.spent.Turns++
	return time.Duration(m.budget.Time - used), nil
}

// Close implements [Client].
func (m *Meter) Close() error { return m.client.Close() }
