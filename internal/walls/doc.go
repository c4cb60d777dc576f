// Package walls holds no code, only the test that checks which part of the project imports which, from what the
// compiler sees. The linter has the same rules; this test makes sure that they cannot be off by accident.
package walls
