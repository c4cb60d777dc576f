package network

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

// Budget bounds what one command uses of the hosts of its secrets.
type Budget = sdk.Budget

// ParseBudget reads the values of --budget, as requests=200, tokens=2000000 or cost=5, and those of --price, as
// MODEL=INPUT/OUTPUT or MODEL=INPUT/OUTPUT/CACHE_READ/CACHE_WRITE for a million tokens each. more are prices that count
// after those. Without values the budget is nil.
func ParseBudget(values, prices []string, more []sdk.Price) (*Budget, error) {
	if len(values) == 0 {
		if len(prices) > 0 {
			return nil, fmt.Errorf("--price %s: prices are for --budget cost=AMOUNT", prices[0])
		}
		return nil, nil
	}
	b := &Budget{}
	for _, text := range values {
		name, value, _ := strings.Cut(text, "=")
		var err error
		switch name {
		case "requests":
			b.Requests, err = strconv.ParseInt(value, 10, 64)
		case "tokens":
			b.Tokens, err = strconv.ParseInt(value, 10, 64)
		case "cost":
			b.Cost, err = amount(value)
		default:
			return nil, fmt.Errorf("--budget %q: want requests=NUMBER, tokens=NUMBER or cost=AMOUNT", text)
		}
		if err != nil || b.Requests < 0 || b.Tokens < 0 || value == "0" {
			return nil, fmt.Errorf("--budget %q: want a number above 0", text)
		}
	}
	for _, text := range prices {
		p, err := parsePrice(text)
		if err != nil {
			return nil, fmt.Errorf("--price %q: %w", text, err)
		}
		b.Prices = append(b.Prices, p)
	}
	if b.Prices = append(b.Prices, more...); b.Cost > 0 && len(b.Prices) == 0 {
		return nil,
			fmt.Errorf("--budget cost=%g needs prices: --price MODEL=INPUT/OUTPUT, for a million tokens, such as --price "+
				"'*=3/15'", b.Cost)
	}
	return b, nil
}

func parsePrice(text string) (sdk.Price, error) {
	i := strings.LastIndexByte(text, '=') // a model's name may have one
	parts := strings.Split(text[i+1:], "/")
	if i < 1 || len(parts) != 2 && len(parts) != 4 {
		return sdk.Price{},
			fmt.Errorf("want MODEL=INPUT/OUTPUT or MODEL=INPUT/OUTPUT/CACHE_READ/CACHE_WRITE, for a million tokens")
	}
	var n [4]float64
	for i, part := range parts {
		var err error
		if n[i], err = amount(part); err != nil {
			return sdk.Price{}, err
		}
	}
	if len(parts) == 2 { // at least what the cache costs: some ask twice the price of input for writing to it
		n[2], n[3] = n[0], 2*n[0]
	}
	p := sdk.Price{Model: text[:i], Input: n[0], Output: n[1], CacheRead: n[2], CacheWrite: n[3]}
	return p, CheckPrice(p)
}

// CheckPrice says what is wrong with a price.
func CheckPrice(p sdk.Price) error {
	if _, err := path.Match(p.Model, ""); err != nil || p.Model == "" {
		return fmt.Errorf("invalid model %q: want a name, where * matches any characters", p.Model)
	}
	for _, n := range []float64{p.Input, p.Output, p.CacheRead, p.CacheWrite} {
		if !(n >= 0) || math.IsInf(n, 0) {
			return fmt.Errorf("invalid price %g: want at least 0", n)
		}
	}
	return nil
}

func amount(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("invalid amount %q", text)
	}
	return n, nil
}
