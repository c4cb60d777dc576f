// Package loops holds tests of generate and cycle with the programs as they are installed: at a terminal, interrupted,
// killed and gone on with, and with a key that nobody may see.
package loops
