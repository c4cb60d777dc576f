package sdk

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type common struct {
	User string `hutch:"user" default:"nobody" doc:"Who runs it."`
}

type mount struct {
	From     string   `hutch:"from,required" doc:"Host path."`
	ReadOnly bool     `hutch:"read_only" default:"true" doc:"No writes."`
	Options  []string `hutch:"options" doc:"Of mount."`
}

func (m *mount) Validate() []Diagnostic {
	if m.From == "/" {
		return []Diagnostic{{Summary: "the root cannot be mounted", Path: "from"}}
	}
	return nil
}

type point struct {
	X int  `hutch:"x,required" doc:"Right."`
	Y *int `hutch:"y" doc:"Down."`
}

type full struct {
	common
	Image   string             `hutch:"image,required" doc:"Image to run."`
	Boot    time.Duration      `hutch:"boot" default:"30s" doc:"How long."`
	Memory  Bytes              `hutch:"memory" default:"512MiB" doc:"Of the machine."`
	Retries uint8              `hutch:"retries" default:"3" doc:"How often."`
	Load    float64            `hutch:"load" doc:"Most."`
	Fast    *bool              `hutch:"fast" deprecated:"use boot" doc:"Faster."`
	Token   string             `hutch:"token,sensitive" doc:"Of the registry."`
	Env     map[string]string  `hutch:"env" doc:"Variables."`
	Ports   []int              `hutch:"ports" default:"[80, 443]" doc:"Open ones."`
	Address netip.Addr         `hutch:"address" doc:"To listen on."`
	Extra   json.RawMessage    `hutch:"extra" doc:"Anything."`
	Any     any                `hutch:"any" doc:"Anything else."`
	At      point              `hutch:"at" doc:"Where."`
	Points  map[string][]point `hutch:"points" doc:"Where else."`
	Mounts  []mount            `hutch:"mount,block,max=2" doc:"Mounts."`
	Volumes map[string]*mount  `hutch:"volume,block" doc:"Volumes."`
	Retry   *struct {
		Times int `hutch:"times" default:"5" doc:"How often."`
	} `hutch:"retry,block" doc:"At most one."`
	Log struct {
		Level string `hutch:"level" default:"info" doc:"How much."`
	} `hutch:"log,block" doc:"Logging."`
	cache string
	Done  bool `hutch:"-"`
}

func TestSchemaOf(t *testing.T) {
	got, err := SchemaOf(&full{cache: "unused"})
	if err != nil {
		t.Fatal(err)
	}
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	mounts := Schema{Attributes: []Attribute{
		{Name: "from", Type: "string", Required: true, Doc: "Host path."},
		{Name: "read_only", Type: "bool", Default: raw("true"), Doc: "No writes."},
		{Name: "options", Type: "list(string)", Doc: "Of mount."},
	}}
	want := Schema{
		Attributes: []Attribute{
			{Name: "user", Type: "string", Default: raw(`"nobody"`), Doc: "Who runs it."},
			{Name: "image", Type: "string", Required: true, Doc: "Image to run."},
			{Name: "boot", Type: "string", Default: raw(`"30s"`), Doc: "How long."},
			{Name: "memory", Type: "string", Default: raw(`"512MiB"`), Doc: "Of the machine."},
			{Name: "retries", Type: "number", Default: raw("3"), Doc: "How often."},
			{Name: "load", Type: "number", Doc: "Most."},
			{Name: "fast", Type: "bool", Deprecated: "use boot", Doc: "Faster."},
			{Name: "token", Type: "string", Sensitive: true, Doc: "Of the registry."},
			{Name: "env", Type: "map(string)", Doc: "Variables."},
			{Name: "ports", Type: "list(number)", Default: raw("[80, 443]"), Doc: "Open ones."},
			{Name: "address", Type: "string", Doc: "To listen on."},
			{Name: "extra", Type: "any", Doc: "Anything."},
			{Name: "any", Type: "any", Doc: "Anything else."},
			{Name: "at", Type: "object({x = number, y = optional(number)})", Doc: "Where."},
			{Name: "points", Type: "map(list(object({x = number, y = optional(number)})))", Doc: "Where else."},
		},
		Blocks: []Block{
			{Name: "mount", Nesting: NestingList, Max: 2, Doc: "Mounts.", Schema: mounts},
			{Name: "volume", Nesting: NestingMap, Doc: "Volumes.", Schema: mounts},
			{Name: "retry", Nesting: NestingSingle, Max: 1, Doc: "At most one.", Schema: Schema{Attributes: []Attribute{{Name: "times", Type: "number", Default: raw("5"), Doc: "How often."}}}},
			{Name: "log", Nesting: NestingSingle, Max: 1, Doc: "Logging.", Schema: Schema{Attributes: []Attribute{{Name: "level", Type: "string", Default: raw(`"info"`), Doc: "How much."}}}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if empty, err := SchemaOf(nil); err != nil || len(empty.Attributes)+len(empty.Blocks) != 0 {
		t.Errorf("nil gives %+v and %v", empty, err)
	}
}

type selfish struct {
	Next *selfish `hutch:"next" doc:"x"`
}

func TestBadTagsSayWhere(t *testing.T) {
	tests := map[string]struct {
		config any
		want   string
	}{
		"no struct": {7, "the configuration of a backend is a struct, not int"},
		"no tag":    {struct{ Image string }{}, `.Image has no hutch tag: give it one, or`},
		"not exported": {struct {
			image string `hutch:"image"`
		}{}, ".image has a hutch tag but is not exported"},
		"a bad name": {struct {
			A string `hutch:"Image-Name"`
		}{}, `.A: "Image-Name" is no name for an attribute`},
		"a bad option": {struct {
			A string `hutch:"a,requierd"`
		}{}, `.A: the tag option "requierd" is not one of required, sensitive, block, min=N, max=N`},
		"a bad default": {struct {
			A int `hutch:"a" default:"many"`
		}{}, `.A: the default "many" is not JSON, which type number needs`},
		"a wrong default": {struct {
			A time.Duration `hutch:"a" default:"30"`
		}{}, `.A: the default "30" does not fit: must be a duration with its unit, such as 30s or 2m`},
		"default and required": {struct {
			A int `hutch:"a,required" default:"1"`
		}{}, `.A: a required attribute needs no default`},
		"a name twice": {struct {
			A int `hutch:"a"`
			B int `hutch:"a"`
		}{}, `.B: the name "a" is taken by A`},
		"a channel": {struct {
			A chan int `hutch:"a"`
		}{}, `.A: the type chan int cannot stand in a run file`},
		"a map of ints": {struct {
			A map[int]string `hutch:"a"`
		}{}, `.A: a map needs string keys, not int`},
		"a block of ints": {struct {
			A []int `hutch:"a,block"`
		}{}, `.A: a block is a struct, a pointer to one, or a slice or map of these, not []int`},
		"min of a single": {struct {
			A common `hutch:"a,block,min=1"`
		}{}, `.A: a block that stands at most once has neither min nor max; use required`},
		"min above max": {struct {
			A []common `hutch:"a,block,min=3,max=2"`
		}{}, `.A: the tag option "max=2" needs a number, and min at most max`},
		"a sensitive block": {struct {
			A common `hutch:"a,block,sensitive"`
		}{}, `.A: a block has no default`},
		"inside itself": {selfish{}, "holds itself"},
		"deep inside": {struct {
			A []struct {
				B []struct{ C int } `hutch:"b,block"`
			} `hutch:"a,block"`
		}{}, ".C has no hutch tag"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := SchemaOf(tt.config)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to contain %s", err, tt.want)
			}
		})
	}
}

func decode(t *testing.T, config any, raw string) (any, []Diagnostic) {
	t.Helper()
	typ := reflect.TypeOf(config)
	fields, err := fieldsOf(typ, nil)
	if err != nil {
		t.Fatal(err)
	}
	return decodeConfig(typ, fields, json.RawMessage(raw))
}

func TestDecodeConfig(t *testing.T) {
	got, diags := decode(t, full{}, `{
		"image": "alpine", "memory": "2GiB", "retries": 255, "load": 0.5, "fast": false, "env": {"A": "1"},
		"address": "127.0.0.1", "extra": {"a": [1]}, "any": [true], "at": {"x": 1, "y": 2}, "points": {"p": [{"x": 3}]},
		"mount": [{"from": "/a", "read_only": false}, {"from": "/b", "options": ["ro"]}],
		"volume": {"v 1": {"from": "/v"}}, "retry": {}, "token": null}`)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	no, two := false, 2
	want := &full{
		common: common{User: "nobody"}, Image: "alpine", Boot: 30 * time.Second, Memory: 2 << 30, Retries: 255, Load: 0.5, Fast: &no,
		Env: map[string]string{"A": "1"}, Ports: []int{80, 443}, Address: netip.MustParseAddr("127.0.0.1"), Extra: json.RawMessage(`{"a": [1]}`),
		Any: []any{true}, At: point{X: 1, Y: &two}, Points: map[string][]point{"p": {{X: 3}}},
		Mounts:  []mount{{From: "/a"}, {From: "/b", ReadOnly: true, Options: []string{"ro"}}},
		Volumes: map[string]*mount{"v 1": {From: "/v", ReadOnly: true}},
	}
	want.Retry = &struct {
		Times int `hutch:"times" default:"5" doc:"How often."`
	}{5}
	want.Log.Level = "info"
	if !reflect.DeepEqual(want, got) {
		t.Errorf("want %+v\ngot  %+v", want, got)
	}
}

func TestWrongValuesSayWhere(t *testing.T) {
	tests := map[string]struct{ raw, want string }{
		"missing":                      {`{}`, "image: image is required"},
		"null":                         {`{"image": null}`, "image: image is required"},
		"no object":                    {`[]`, ": must be an object"},
		"unknown":                      {`{"image": "x", "imgae": 1}`, `imgae: there is no attribute "imgae"`},
		"number":                       {`{"image": 7}`, "image: must be a string"},
		"too big":                      {`{"image": "x", "retries": 256}`, "retries: must be a whole number that fits uint8"},
		"no duration":                  {`{"image": "x", "boot": "30"}`, "boot: must be a duration with its unit, such as 30s or 2m"},
		"no size":                      {`{"image": "x", "memory": "lots"}`, `memory: "lots" is not a size: write a number with one of the units B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, as in 512MiB`},
		"no address":                   {`{"image": "x", "address": "here"}`, `address: ParseAddr("here"): unable to parse IP`},
		"in a list":                    {`{"image": "x", "ports": [1, "b"]}`, "ports[1]: must be a whole number that fits int"},
		"in a map":                     {`{"image": "x", "env": {"A B": []}}`, `env["A B"]: must be a string`},
		"in an object":                 {`{"image": "x", "points": {"p": [{"x": 1}, {}]}}`, `points["p"][1].x: x is required`},
		"in a block":                   {`{"image": "x", "mount": [{"from": "/a"}, {"from": 2}]}`, "mount[1].from: must be a string"},
		"in a labelled one":            {`{"image": "x", "volume": {"v": {"from": "/v", "options": ["a", 1]}}}`, `volume["v"].options[1]: must be a string`},
		"too many blocks":              {`{"image": "x", "mount": [{"from": "/a"}, {"from": "/b"}, {"from": "/c"}]}`, `mount: at most 2 block(s) "mount" allowed`},
		"from Validate":                {`{"image": "x", "mount": [{"from": "/a"}, {"from": "/"}]}`, "mount[1].from: the root cannot be mounted"},
		"from Validate behind a label": {`{"image": "x", "volume": {"v": {"from": "/"}}}`, `volume["v"].from: the root cannot be mounted`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, diags := decode(t, full{}, tt.raw)
			if len(diags) != 1 {
				t.Fatalf("got %d diagnostics: %+v", len(diags), diags)
			}
			if got := diags[0].Path + ": " + diags[0].Summary; got != tt.want || diags[0].Severity != SeverityError {
				t.Errorf("got  %s %s\nwant error %s", diags[0].Severity, got, tt.want)
			}
		})
	}
}

func FuzzDecodeConfig(f *testing.F) {
	fields, err := fieldsOf(reflect.TypeFor[full](), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"image":"x","mount":[{"from":"/"}],"points":{"a":[{"x":1}]},"retry":null,"log":{}}`))
	f.Add([]byte(`{"image":{},"ports":[null],"at":null,"any":1e400}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, diags := decodeConfig(reflect.TypeFor[full](), fields, raw)
		if v == nil && len(diags) == 0 {
			t.Error("neither a value nor a reason")
		}
	})
}

func TestParseBytes(t *testing.T) {
	good := map[string]Bytes{"0": 0, "1": 1, "512MiB": 512 << 20, "1.5GiB": 3 << 29, "100k": 100 << 10, "2 gb": 2e9, "7B": 7, " 3m ": 3 << 20, "0.5": 1}
	for in, want := range good {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("%q: got %d and %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "MiB", "-1", "1XB", "1e3", "0x10", "1.2.3", "99999999TiB", "NaN", "Inf"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("%q: got %d, want an error", in, got)
		}
	}
	for in, want := range map[Bytes]string{0: "0B", 1000: "1000B", 1 << 10: "1KiB", 3 << 29: "1536MiB", 1 << 40: "1TiB", -5: "-5B"} {
		if got := in.String(); got != want {
			t.Errorf("%d: got %s, want %s", in, got, want)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	f.Add("512MiB")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseBytes(s)
		if err != nil {
			return
		}
		if again, err := ParseBytes(n.String()); err != nil || again != n || n < 0 {
			t.Errorf("%q gives %d, which reads back as %d and %v", s, n, again, err)
		}
	})
}

func ExampleSchemaOf() {
	type config struct {
		Image string        `hutch:"image,required" doc:"Image to run."`
		Boot  time.Duration `hutch:"boot" default:"30s" doc:"How long the machine may take to start."`
	}
	schema, err := SchemaOf(config{})
	if err != nil {
		panic(err)
	}
	for _, a := range schema.Attributes {
		fmt.Printf("%s %s required=%t default=%s\n", a.Name, a.Type, a.Required, a.Default)
	}
	// Output:
	// image string required=true default=
	// boot string required=false default="30s"
}
