// Package differential runs the same programs on several backends, as a user does with `hutch run --all-backends`, and
// wants the same result from each, field by field.
package differential
