package main

// closest returns the known word that s was probably meant to be, or "".
func closest(s string, known []string) string {
	best, limit := "", min(1+len(s)/5, len(s)/2) // what shares nothing with a short word was not meant
	for _, k := range known {
		if d := distance(s, k); d <= limit {
			best, limit = k, d-1
		}
	}
	return best
}

// distance is the number of characters to insert, delete, replace or swap to make b of a.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}
