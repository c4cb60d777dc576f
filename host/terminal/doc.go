// Package terminal connects runs to the terminal or the pipes of the person who started them.
package terminal
