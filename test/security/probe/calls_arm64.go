package main

// A 64-bit program cannot make 32-bit calls here, and there are no old calls.
func foreign() []string                                    { return nil }
func foreignCall(string)                                   {}
func machineCalls() map[string]func() error                { return nil }
func oldModeCalls(uintptr) map[string]func(p string) error { return nil }
