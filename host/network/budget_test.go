package network

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

func TestParseBudget(t *testing.T) {
	more := []sdk.Price{{Model: "x", Input: 1}}
	for _, tt := range []struct {
		values, prices []string
		more           []sdk.Price
		want           *Budget
		bad            string
	}{
		{},
		{values: []string{"requests=2"}, want: &Budget{Requests: 2}},
		{values: []string{"tokens=10", "requests=3"}, more: more, want: &Budget{Tokens: 10, Requests: 3, Prices: more}},
		{values: []string{"cost=0.5"}, prices: []string{"a=b-*=3/15", "c=1/2/3/4"}, more: more,
			want: &Budget{Cost: 0.5, Prices: []sdk.Price{{Model: "a=b-*", Input: 3, Output: 15, CacheRead: 3, CacheWrite: 6}, {Model: "c", Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}, more[0]}}},
		{prices: []string{"a=1/2"}, bad: "--price a=1/2: prices are for --budget cost=AMOUNT"},
		{values: []string{"cost=1"}, bad: "--budget cost=1 needs prices"},
		{values: []string{"dollars=1"}, bad: `--budget "dollars=1": want requests=NUMBER`},
		{values: []string{"requests=0"}, bad: "want a number above 0"},
		{values: []string{"tokens=-4"}, bad: "want a number above 0"},
		{values: []string{"tokens=many"}, bad: "want a number above 0"},
		{values: []string{"cost=NaN"}, bad: "want a number above 0"},
		{values: []string{"cost=1"}, prices: []string{"a=1"}, bad: `--price "a=1": want MODEL=INPUT/OUTPUT`},
		{values: []string{"cost=1"}, prices: []string{"=1/2"}, bad: `--price "=1/2": want`},
		{values: []string{"cost=1"}, prices: []string{"[=1/2"}, bad: "invalid model"},
		{values: []string{"cost=1"}, prices: []string{"a=1/x"}, bad: `invalid amount "x"`},
	} {
		got, err := ParseBudget(tt.values, tt.prices, tt.more)
		if tt.bad != "" {
			if err == nil || !strings.Contains(err.Error(), tt.bad) {
				t.Errorf("%q %q: %v, want %s", tt.values, tt.prices, err, tt.bad)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%q %q: %v %s", tt.values, tt.prices, err, diff)
		}
	}
}
