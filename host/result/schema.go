package result

import _ "embed"

// JSONSchema is the JSON Schema (draft 2020-12) of [Schema]. A test holds it and the Go types together.
//
//go:embed schema.json
var JSONSchema []byte
