package files

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// bigLayers is a project of n files, of which a tenth was changed and a tenth deleted, and a tenth more is new.
func bigLayers(b testing.TB, n int) *box {
	bx := newBox(b, true, nil, nil)
	body := strings.Repeat("\tline of a source file, as there are many of them\n", 40)
	for i := range n {
		dir := fmt.Sprintf("%s/d%03d/sub", bx.lower, i%200)
		if i < 200 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		text := body
		if i%100 == 0 {
			text += "func Needle_7(x int) {}\n"
		}
		if err := os.WriteFile(fmt.Sprintf("%s/f%05d.go", dir, i), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; i < n; i += 10 {
		name := fmt.Sprintf("d%03d/sub/f%05d.go", i%200, i)
		if err := bx.u.WriteFile(name, strings.NewReader(body), 0o644); err != nil {
			b.Fatal(err)
		}
		if err := bx.u.Remove(fmt.Sprintf("d%03d/sub/f%05d.go", (i+1)%200, i+1), false); err != nil {
			b.Fatal(err)
		}
		if err := bx.u.WriteFile(fmt.Sprintf("d%03d/sub/new%05d.go", i%200, i), strings.NewReader(body), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return bx
}

func BenchmarkTools(b *testing.B) {
	bx := bigLayers(b, 10_000)
	f := bx.open(Options{})
	for _, p := range []string{"Needle_7", `func \w+_\d\(`, `[A-Z]\w+_[0-9]`} {
		b.Run("grep/"+p, func(b *testing.B) {
			for b.Loop() {
				if _, err := f.Grep(context.Background(), GrepRequest{Pattern: p}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.List(context.Background(), ListRequest{Max: 100_000}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
