package sdk

import "encoding/json"

// Schema says what a backend block may hold. The host checks the block against
// it, so that a wrong attribute is reported at its own line of the run file.
type Schema struct {
	Attributes []Attribute
	Blocks     []Block
}

// Attribute is one NAME = VALUE of a block.
type Attribute struct {
	Name string
	// Type is an HCL type constraint: string, number, bool, list(T), set(T),
	// map(T), object({name = T, other = optional(T)}), any.
	Type       string
	Required   bool
	Default    json.RawMessage // used when the attribute is absent; nil means the type's null
	Doc        string          // one or two sentences, units and bounds included
	Sensitive  bool            // never printed, never stored
	Deprecated string          // what to use instead; empty while it is not deprecated
}

// Block is a nested block.
type Block struct {
	Name    string
	Nesting Nesting
	Min     int // fewest, for NestingList and NestingMap
	Max     int // most; 0 means any number
	Doc     string
	Schema  Schema
}

// Nesting says how often a block may stand and how its values reach the backend.
type Nesting string

// The ways of nesting.
const (
	NestingSingle Nesting = "single" // at most one: an object, or null
	NestingList   Nesting = "list"   // a list of objects in the order of the file
	NestingMap    Nesting = "map"    // one label each: an object keyed by label
)
