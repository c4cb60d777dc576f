package sdk

import "encoding/json"

// Schema says what a backend block may hold. The host checks the block against
// it, so that a wrong attribute is reported at its own line of the run file.
type Schema struct {
	Attributes []Attribute `json:"attributes,omitempty"`
	Blocks     []Block     `json:"blocks,omitempty"`
}

// Attribute is one NAME = VALUE of a block.
type Attribute struct {
	Name string `json:"name"`
	// Type is an HCL type constraint: string, number, bool, list(T), set(T),
	// map(T), object({name = T, other = optional(T)}), any.
	Type       string          `json:"type"`
	Required   bool            `json:"required,omitempty"`
	Default    json.RawMessage `json:"default,omitempty"`    // used when the attribute is absent; nil means the type's null
	Doc        string          `json:"doc,omitempty"`        // one or two sentences, units and bounds included
	Sensitive  bool            `json:"sensitive,omitempty"`  // never printed, never stored
	Deprecated string          `json:"deprecated,omitempty"` // what to use instead; empty while it is not deprecated
}

// Block is a nested block.
type Block struct {
	Name    string  `json:"name"`
	Nesting Nesting `json:"nesting"`
	Min     int     `json:"min,omitempty"` // fewest, for NestingList and NestingMap
	Max     int     `json:"max,omitempty"` // most; 0 means any number
	Doc     string  `json:"doc,omitempty"`
	Schema  Schema  `json:"schema"`
}

// Nesting says how often a block may stand and how its values reach the backend.
type Nesting string

// The ways of nesting.
const (
	NestingSingle Nesting = "single" // at most one: an object, or null
	NestingList   Nesting = "list"   // a list of objects in the order of the file
	NestingMap    Nesting = "map"    // one label each: an object keyed by label
)
