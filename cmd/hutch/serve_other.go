//go:build !linux

package main

import "errors"

const workArg = "__work"

type serveCmd struct{}

// Run refuses.
func (*serveCmd) Run() error { return work() }

func work() error { return errors.New("hutch serve needs Linux") }
