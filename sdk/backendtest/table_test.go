package backendtest

import (
	"regexp"
	"testing"
)

func TestTheTable(t *testing.T) {
	seen := map[string]bool{}
	form := regexp.MustCompile(`^[a-z]+/[a-z0-9-]+$`)
	last, groups := "", map[string]bool{}
	for _, c := range Checks() {
		if !form.MatchString(c.ID) || seen[c.ID] {
			t.Errorf("%q is no id, or is there twice", c.ID)
		}
		seen[c.ID] = true
		if c.Proves == "" || c.Fix == "" || c.run == nil {
			t.Errorf("%s: it proves %q, its fix is %q", c.ID, c.Proves, c.Fix)
		}
		if c.Group() != last && groups[c.Group()] {
			t.Errorf("%s: its group stands in two places", c.ID)
		}
		last = c.Group()
		groups[last] = true
	}
	if len(seen) < 100 {
		t.Errorf("the table has %d checks", len(seen))
	}
	t.Logf("%d checks", len(seen))
}

func TestTypesOfTheSchema(t *testing.T) {
	for s, ok := range map[string]bool{
		"string": true, "list(string)": true, "map(list(number))": true, "set(bool)": true, "any": true,
		"object({})": true, "object({a = string, b = optional(list(any))})": true, "tuple([string, number])": true, " list( string ) ": true,
		"object({a = string\n  b = number\n})": true,
		"":                                     false, "str": false, "list": false, "list()": false, "list(string": false, "list(string))": false, "optional(string)": false,
		"object(string)": false, "object({a string})": false, "tuple(string)": false, "string string": false,
	} {
		if isType(s) != ok {
			t.Errorf("%q: %v", s, !ok)
		}
	}
}
