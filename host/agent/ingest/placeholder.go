package ingest

import "strings"

// placeholder returns the number of the first line that stands for text which the author did not write out, such as
// "# ... rest of the code unchanged ..."; 0 when there is none.
func placeholder(content []byte) int {
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		if len(line) > 200 || !strings.Contains(line, "...") && !strings.Contains(line, "…") {
			continue
		}
		text := strings.ToLower(strings.Trim(line, " \t\r\n#/*-<>!;%{}()[]"))
		if !strings.HasPrefix(text, "...") && !strings.HasPrefix(text, "…") {
			continue
		}
		for _, words := range []string{"existing code", "rest of", "unchanged", "remaining code", "same as before", "other code", "previous code"} {
			if strings.Contains(text, words) {
				return n
			}
		}
	}
	return 0
}
