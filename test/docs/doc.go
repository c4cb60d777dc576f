// Package docs holds the tests that nothing in docs/ says what is not so: generated pages are current, the reference
// of run files names exactly what the parser knows, run files in the text are valid, and links lead somewhere.
package docs
