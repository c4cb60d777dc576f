//go:build !linux

package sdk

// keepDescriptors does nothing: no backend of these systems starts programs that
// outlive a run.
func keepDescriptors() {}
