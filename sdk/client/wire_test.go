package client_test

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// fill gives every field below v its own value that is not zero, so that a field which
// somebody forgot on the wire shows.
func fill(v reflect.Value, n *int64) {
	*n++
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(0, *n)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"n":` + time.Duration(*n).String()[:1] + `}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(elem, n)
		v.SetMapIndex(key, elem)
	case reflect.String:
		v.SetString("text " + time.Duration(*n).String())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(*n)
	case reflect.Uint32, reflect.Uint16:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	}
}

func filled[T any](t *testing.T) T {
	t.Helper()
	var out T
	var n int64
	fill(reflect.ValueOf(&out).Elem(), &n)
	return out
}

// all is a backend that answers with everything and notes what it is asked.
type all struct {
	processes
	plan     *sdk.Plan
	findings []sdk.Finding
	ready    sdk.Ready
	exit     *sdk.Exit
	handles  []sdk.Handle

	spec  *sdk.Spec
	req   *sdk.CreateRequest
	cmd   *sdk.Command
	owner string
}

type allConfig struct {
	Any json.RawMessage `hutch:"any" doc:"Whatever."`
}

func (a *all) Describe() sdk.Description {
	return sdk.Description{Name: "all", Version: "1", Summary: "everything", Isolation: sdk.IsolationVM, Config: allConfig{}, TTY: true, Fork: true, Ahead: true, Sandbox: (*allBox)(nil),
		Limits: []sdk.Limit{"timeout", "memory", "cpus", "pids", "disk", "files"}, Workspaces: []sdk.WorkspaceMode{"w"}, Networks: []sdk.NetworkMode{"n", sdk.NetworkFiltered}, Formats: []sdk.Format{"f"}, Environment: []string{"E"}}
}
func (a *all) Check(context.Context) ([]sdk.Finding, error) { return a.findings, nil }
func (a *all) Plan(_ context.Context, s *sdk.Spec) (*sdk.Plan, error) {
	a.spec = s
	return a.plan, nil
}
func (a *all) Create(_ context.Context, r *sdk.CreateRequest) (sdk.Sandbox, error) {
	a.req = r
	return &allBox{a}, nil
}
func (a *all) List(_ context.Context, owner string) ([]sdk.Handle, error) {
	a.owner = owner
	return a.handles, nil
}

type allBox struct{ a *all }

func (b *allBox) Ready() sdk.Ready                                        { return b.a.ready }
func (b *allBox) Stop(context.Context) error                              { return nil }
func (b *allBox) Start(context.Context, func(string, int64, int64)) error { return nil }
func (b *allBox) Exec(_ context.Context, c *sdk.Command) (*sdk.Exit, error) {
	b.a.cmd = c
	return b.a.exit, nil
}

// Every field of every type crosses the wire.
func TestNoFieldIsLost(t *testing.T) {
	a := &all{plan: &sdk.Plan{}}
	*a.plan = filled[sdk.Plan](t)
	a.findings = filled[[]sdk.Finding](t)
	for i := range a.plan.Diagnostics {
		a.plan.Diagnostics[i].Severity = sdk.SeverityWarning
	}
	for i := range a.findings {
		a.findings[i].Status = sdk.SeverityOK
	}
	a.ready, a.handles = filled[sdk.Ready](t), filled[[]sdk.Handle](t)
	for i := range a.handles {
		a.handles[i].StateDir = "" // the host's alone
	}
	exit := filled[sdk.Exit](t)
	exit.Cause = sdk.CauseOOM
	for i, t := range exit.Traffic { // the sum is made here
		exit.Traffic[i].Used = &sdk.Used{}
		for _, r := range t.Requests {
			exit.Traffic[i].Used.Add(r)
		}
	}
	a.exit = &exit
	c := serve(t, a)
	ctx := context.Background()

	same := func(what string, want, got any, opts ...cmp.Option) {
		t.Helper()
		if diff := cmp.Diff(want, got, opts...); diff != "" {
			t.Errorf("%s; -want +got:\n%s", what, diff)
		}
	}
	facts, err := c.Describe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	same("facts", c.Server().Facts(), *facts)
	if len(facts.Environment) == 0 || len(facts.Schema.Attributes) != 1 || facts.SDKVersion == "" {
		t.Errorf("facts %+v", facts)
	}
	findings, err := c.Check(ctx)
	if err != nil {
		t.Fatal(err)
	}
	same("findings", a.findings, findings)
	spec := filled[sdk.Spec](t)
	spec.Network, spec.Workspace.Mode = "n", "w" // what is not claimed is refused by the SDK
	spec.Config = json.RawMessage(`{"any":[1,"x",null]}`)
	plan, err := c.Plan(ctx, &spec)
	if err != nil {
		t.Fatal(err)
	}
	same("plan", a.plan, plan)
	seen := spec
	seen.Config = &allConfig{Any: json.RawMessage(`[1,"x",null]`)}
	same("spec", &seen, a.spec)

	handles, err := c.List(ctx, "me")
	if err != nil {
		t.Fatal(err)
	}
	same("handles", a.handles, handles)
	same("owner", "me", a.owner)

	req := filled[sdk.CreateRequest](t)
	req.Spec, req.ID, req.StateDir, req.Allocated, req.Progress = spec, "one", t.TempDir(), nil, nil
	noFuncs := cmp.FilterPath(func(p cmp.Path) bool { n := p.Last().String(); return n == ".Allocated" || n == ".Progress" }, cmp.Ignore())
	create := func(req sdk.CreateRequest) *client.Sandbox {
		sb, err := c.Create(ctx, &req)
		if err != nil {
			t.Fatal(err)
		}
		same("ready", a.ready, sb.Ready())
		req.Config = seen.Config
		same("request", &req, a.req, noFuncs)
		return sb
	}
	ahead := req
	ahead.ID, ahead.Keep, ahead.From = "ahead", false, nil
	create(ahead)
	req.Ahead = false // not with Keep
	sb := create(req)

	got, err := sb.Exec(ctx, &client.Command{Argv: []string{"a", ""}, Env: map[string]string{"A": "1=2", "B": ""}, Dir: "/d", User: "u",
		TTY: &sdk.WindowSize{Rows: 1, Cols: 2}, Timeout: time.Hour, Grace: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	same("exit", a.exit, got)
	a.cmd.Stdin, a.cmd.Stdout, a.cmd.Stderr, a.cmd.Started, a.cmd.Resizes, a.cmd.Signals = nil, nil, nil, nil, nil, nil
	a.cmd.Decided, a.cmd.Allows = nil, nil
	same("command", &sdk.Command{Argv: []string{"a", ""}, Env: map[string]string{"A": "1=2", "B": ""}, Dir: "/d", User: "u",
		TTY: &sdk.WindowSize{Rows: 1, Cols: 2}, Timeout: time.Hour, Grace: time.Minute}, a.cmd)
}

// gRPC takes 4 MiB by default, and go-plugin does not change that.
func TestMessagesMayBeBig(t *testing.T) {
	c := serve(t, &all{plan: &sdk.Plan{Notes: []string{strings.Repeat("x", 5<<20)}}})
	big, err := json.Marshal(map[string]string{"any": strings.Repeat("x", 5<<20)})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := c.Plan(context.Background(), &sdk.Spec{Config: json.RawMessage(big)})
	if err != nil || len(plan.Notes[0]) != 5<<20 {
		t.Errorf("got %v", err)
	}
}
