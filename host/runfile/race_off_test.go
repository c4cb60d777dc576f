//go:build !race

package runfile

const slack = 1
