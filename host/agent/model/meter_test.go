package model_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/modeltest"
	"github.com/hutch-run/hutch/host/units"
)

func TestBudget(t *testing.T) {
	steps := func(n int) (all []modeltest.Step) {
		for range n {
			all = append(all, modeltest.Text("hello")) // 15 tokens
		}
		return all
	}
	for _, c := range []struct {
		budget  model.Budget
		answers int
		what    string
	}{
		{model.Budget{Turns: 3}, 3, "turns"},
		{model.Budget{Tokens: 31}, 3, "tokens"}, // the last one goes beyond
		{model.Budget{Tokens: 30}, 2, "tokens"},
		{model.Budget{Tokens: 1}, 1, "tokens"},
	} {
		m := model.Metered(modeltest.New(steps(10)...), c.budget)
		answers := 0
		var err error
		for ; err == nil; answers++ {
			_, err = m.Answer(t.Context(), hello, nil)
		}
		var over *model.BudgetError
		if !errors.As(err, &over) || over.What != c.what || answers-1 != c.answers {
			t.Errorf("%+v: %v after %d answers", c.budget, err, answers-1)
		}
		if s := m.Spent(); s.Turns != c.answers || s.InputTokens != int64(10*c.answers) || s.OutputTokens != int64(5*c.answers) {
			t.Errorf("%+v: spent %+v", c.budget, s)
		}
	}
	if b := (model.Budget{}).WithDefaults(); b.Tokens != model.DefaultBudgetTokens || b.Turns != model.DefaultBudgetTurns || b.Time != model.DefaultBudgetTime {
		t.Errorf("%+v", b)
	}
}

// TestBudgetOfTime ends an answer that is being given, and says that from a cancel.
func TestBudgetOfTime(t *testing.T) {
	hang := modeltest.Step{Do: func(ctx context.Context, _ model.Request) (model.Answer, error) {
		<-ctx.Done()
		return model.Answer{}, context.Cause(ctx)
	}}
	m := model.Metered(modeltest.New(hang, hang), model.Budget{Time: units.Duration(10 * time.Millisecond)})
	for range 2 { // the second one is not even asked
		var over *model.BudgetError
		if _, err := m.Answer(t.Context(), hello, nil); !errors.As(err, &over) || over.What != "time" {
			t.Error(err)
		}
	}
	why := errors.New("had enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	var over *model.BudgetError
	if _, err := model.Metered(modeltest.New(hang), model.Budget{}).Answer(ctx, hello, nil); !errors.Is(err, why) || errors.As(err, &over) {
		t.Error(err)
	}
}
