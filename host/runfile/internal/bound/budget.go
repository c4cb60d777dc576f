package bound

import (
	"math/big"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// What one file may cost. Both are far above what any sensible file needs and far below what would be felt.
const (
	MaxSteps = 300_000  // elements looked at or made
	MaxBytes = 64 << 20 // bytes of strings made
)

// maxExponent is the largest binary exponent of a number. Beyond it a few characters of source could stand for
// gigabytes of digits.
const maxExponent = 4096

// Budget is what the evaluation of one file may still cost. Once it is spent it stays spent, whatever try() and can()
// make of the errors; ask Spent after an evaluation. Not safe for concurrent use.
type Budget struct {
	steps, bytes int64
	spent        string
	where        hcl.Range
}

// NewBudget returns a full budget.
func NewBudget() *Budget { return &Budget{steps: MaxSteps, bytes: MaxBytes} }

// Spent says where and why the budget ran out; the reason is empty while it lasts.
func (b *Budget) Spent() (hcl.Range, string) { return b.where, b.spent }

// Charge takes the cost of looking through v, and reports whether the budget lasts.
func (b *Budget) Charge(v cty.Value, where hcl.Range) bool {
	if b.spent == "" {
		b.steps--
		b.charge(v, where)
	}
	return b.spent == ""
}

// Take takes steps and bytes that are known before anything is made, and reports whether the budget lasts.
func (b *Budget) Take(steps, bytes int64, where hcl.Range) bool {
	if b.spent == "" {
		b.steps -= min(steps, MaxSteps+1)
		b.bytes -= min(bytes, MaxBytes+1)
		b.settle(where)
	}
	return b.spent == ""
}

func (b *Budget) settle(where hcl.Range) {
	switch {
	case b.spent != "":
	case b.steps < 0:
		b.spent, b.where = "it makes more elements than a run file may (300,000 in all)", where
	case b.bytes < 0:
		b.spent, b.where = "it makes more text than a run file may (64 MiB in all)", where
	}
}

func (b *Budget) charge(v cty.Value, where hcl.Range) {
	b.steps--
	if b.settle(where); b.spent != "" || v == cty.NilVal {
		return
	}
	v, _ = v.Unmark()
	if v.IsNull() || !v.IsKnown() {
		return
	}
	switch t := v.Type(); {
	case t == cty.String:
		b.bytes -= int64(len(v.AsString()))
		b.settle(where)
	case t == cty.Number:
		if !sane(v.AsBigFloat()) {
			b.spent, b.where = "it makes a number with more than 1,200 digits", where
		}
	case t.IsCollectionType() || t.IsTupleType() || t.IsObjectType():
		for it := v.ElementIterator(); it.Next(); {
			if b.spent != "" {
				return
			}
			_, e := it.Element()
			b.charge(e, where)
		}
	}
}

// sane reports whether a number can be written out in reasonable space.
func sane(f *big.Float) bool {
	if f.IsInf() {
		return true
	}
	e := f.MantExp(nil)
	return e <= maxExponent && e >= -maxExponent
}
