package review

import (
	"context"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// maxRenameBytes bounds what is read, on each side, to find renamed files.
const maxRenameBytes = 256 << 20

// pairRenames makes one change of a file that is gone and a file that is new, where the contents are the same and
// neither is in conflict. Of several with the same content those of the same name go together first.
func (r *Review) pairRenames(ctx context.Context) error {
	bySize := map[int64][2][]*Change{} // gone, new
	for _, c := range r.Changes {
		switch {
		case c.Conflict != "":
		case c.Kind == Deleted && c.Old.Type == File && c.Old.Size > 0:
			p := bySize[c.Old.Size]
			p[0] = append(p[0], c)
			bySize[c.Old.Size] = p
		case c.Kind == Added && c.New.Type == File && c.New.Size > 0:
			p := bySize[c.New.Size]
			p[1] = append(p[1], c)
			bySize[c.New.Size] = p
		}
	}
	left := int64(maxRenameBytes)
	paired := map[*Change]bool{}
	for _, size := range slices.Sorted(maps.Keys(bySize)) {
		p := bySize[size]
		if len(p[0]) == 0 || len(p[1]) == 0 {
			continue
		}
		if left -= size * int64(len(p[0])+len(p[1])); left < 0 {
			break
		}
		gone := map[string][]*Change{}
		for _, c := range p[0] {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if sum, err := hashFile(r.project, c.Path); err == nil {
				gone[sum] = append(gone[sum], c)
			}
		}
		for _, sameName := range []bool{true, false} {
			for _, c := range p[1] {
				if c.from != nil {
					continue
				}
				sum := c.New.SHA256
				if sum == "" {
					copied, err := r.source.copy(ctx, io.Discard, c.Path, size)
					if err != nil {
						continue // the diff and apply say why
					}
					sum = copied.SHA256
				}
				i := slices.IndexFunc(gone[sum], func(g *Change) bool { return !sameName || path.Base(g.Path) == path.Base(c.Path) })
				if i < 0 {
					continue
				}
				c.from, c.From, c.Kind = gone[sum][i], gone[sum][i].Path, Renamed
				c.New.SHA256 = sum
				paired[c.from] = true
				gone[sum] = slices.Delete(gone[sum], i, i+1)
			}
		}
	}
	r.Changes = slices.DeleteFunc(r.Changes, func(c *Change) bool { return paired[c] })
	slices.SortFunc(r.Changes, func(a, b *Change) int { return strings.Compare(a.Path, b.Path) })
	return nil
}
