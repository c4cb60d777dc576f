package main

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestSteady: of a boot that takes long something is said all the time, or the host takes the backend to hang.
func TestSteady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		say, over := progress(func(step string, _, _ int64) { said = append(said, step) }).steady()
		<-time.After(steadyTime + time.Second) // of the bubble's own time; never at the moment when something is said again
		say.say("starting")
		<-time.After(2 * steadyTime)
		say.say("waiting")
		<-time.After(steadyTime)
		over()
		<-time.After(time.Hour)
		if want := []string{"starting", "starting", "starting", "waiting", "waiting"}; !slices.Equal(said, want) {
			t.Errorf("it said %q, want %q", said, want)
		}
	})
}
