package model

// Start is Open with a program of the test's choice.
var Start = start

// Environment is what the program gets of an environment.
var Environment = environment

// PID is the program of a client.
func PID(c Client) int { return c.(*process).cmd.Process.Pid }
