package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/backendtest"
)

// TestConformance runs the suite that every backend has to pass.
func TestConformance(t *testing.T) {
	local(t)
	suite := backendtest.Suite{
		New: func() sdk.Backend { return newBackend() }, StandIn: true,
		BadConfigs: []backendtest.BadConfig{
			{Name: "a template that is a path", Config: map[string]any{"template": "../x"}, Path: "template"},
			{Name: "a domain with a path", Config: map[string]any{"domain": "e2b.app/x"}, Path: "domain"},
			{Name: "a key in the clear", Config: map[string]any{"api_url": "http://api.example.com", "api_key": "e2b_0"}, Path: "api_url"},
			{Name: "the environment's key for another address", Config: map[string]any{"api_url": "https://api.example.com"}, Path: "api_url"},
			{Name: "a daemon's address with a user", Config: map[string]any{"sandbox_url": "https://me@example.com"}, Path: "sandbox_url"},
			{Name: "a tiny timeout", Config: map[string]any{"timeout": "1s"}, Path: "timeout"},
			{Name: "a user that is an option", Config: map[string]any{"user": "-x"}, Path: "user"},
			{Name: "a key with a line in it", Config: map[string]any{"api_key": "e2b_0\nX: y"}, Path: "api_key"},
		},
	}
	suite.Only = picked()
	backendtest.Run(t, suite)
}

// picked are the checks that somebody who works on them wants to look at; nil for all.
func picked() *regexp.Regexp {
	if few := os.Getenv("HUTCH_TEST_CHECKS"); few != "" {
		return regexp.MustCompile(few)
	}
	return nil
}

// TestHosted runs the suite on the hosted service, which costs money.
func TestHosted(t *testing.T) {
	if os.Getenv("HUTCH_TEST_E2B") != "1" || os.Getenv(envKey) == "" {
		t.Skip("the hosted service costs money: HUTCH_TEST_E2B=1 and a key in " + envKey + " run this")
	}
	backendtest.Run(t, backendtest.Suite{New: func() sdk.Backend { return newBackend() }, Only: picked()})
}
