package reference

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

func TestBackend(t *testing.T) {
	f := &sdk.Facts{
		Name: "acme", Summary: "virtual machines by acme", Isolation: sdk.IsolationVM,
		Limits: []sdk.Limit{sdk.LimitMemory, sdk.LimitTimeout}, Workspaces: []sdk.WorkspaceMode{sdk.WorkspacePrivate},
		Schema: sdk.Schema{
			Attributes: []sdk.Attribute{
				{Name: "image", Type: "string", Required: true, Doc: "what to boot"},
				{Name: "size", Type: "number", Default: json.RawMessage("2"), Doc: "small | large"},
				{Name: "token", Type: "string", Sensitive: true, Deprecated: "use key"},
			},
			Blocks: []sdk.Block{{Name: "disk", Nesting: sdk.NestingMap, Max: 4, Doc: "A further disk.",
				Schema: sdk.Schema{Attributes: []sdk.Attribute{{Name: "gib", Type: "number", Doc: "its size"}}}}},
		},
	}
	want := `# Backend acme

virtual machines by acme.

| | |
|---|---|
| isolation | vm |
| workspace modes | ~private~ |
| limits it can hold | ~memory~, ~timeout~ |

## The block

~~~
backend "acme" {
  image = string
  size  = number
  token = string
  disk "LABEL" {
    gib = number
  }
}
~~~

| attribute | type | |
|---|---|---|
| ~image~ | ~string~ | what to boot. Required. |
| ~size~ | ~number~ | small \| large. Default ~2~. |
| ~token~ | ~string~ | Never printed or stored. Deprecated: use key. |

### disk

A further disk. At most 4.

| attribute | type | |
|---|---|---|
| ~disk.gib~ | ~number~ | its size. |
`
	var got strings.Builder
	if err := Backend(&got, f); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.ReplaceAll(want, "~", "`"), got.String()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestBackendWithoutConfig(t *testing.T) {
	var got strings.Builder
	if err := Backend(&got, &sdk.Facts{Name: "plain", Isolation: sdk.IsolationNone}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.String(), "`backend \"plain\" {}` takes no attributes.") {
		t.Errorf("got %s", got.String())
	}
}
