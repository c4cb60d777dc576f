package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

var filters = sdk.Description{Networks: []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFiltered, sdk.NetworkFull}}

// The rules reach the backend, and what it says of the traffic the result and the event chain, however much and
// whatever it is.
func TestFilteredNetwork(t *testing.T) {
	traffic := []sdk.Traffic{
		{Name: "a.example", Port: 443, Allowed: true, Rule: "a.example", Connections: 2, Sent: 10, Received: 20, Secrets: []string{"TOKEN"}},
		{Name: "evil\x1b[2J\xff" + strings.Repeat("x", 1000), Connections: 1, Reason: strings.Repeat("y", 1000)},
	}
	for i := range sdk.MaxTraffic {
		traffic = append(traffic, sdk.Traffic{Name: fmt.Sprintf("n%d.example", i), Port: 80, Connections: 1})
	}
	p := &plain{desc: filters, exit: &sdk.Exit{Cause: sdk.CauseExited, Traffic: traffic}}
	w := newWorld(t, p)
	r := w.run(shell("true", "network {\n allow = [\"a.example\"]\n deny = [\"b.example\"]\n}"), Streams{})
	if diff := cmp.Diff(sdk.NetworkRules{Allow: []string{"a.example"}, Deny: []string{"b.example"}}, p.specs[0].Rules); diff != "" || p.specs[0].Network != sdk.NetworkFiltered {
		t.Errorf("spec: %q %s", p.specs[0].Network, diff)
	}
	want := result.Network{Mode: sdk.NetworkFiltered, Allow: []string{"a.example"}, Deny: []string{"b.example"}, TrafficMore: 2}
	got := r.Network
	got.Traffic = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len(r.Network.Traffic); n != sdk.MaxTraffic || len(r.Network.Denied()) != n-1 {
		t.Fatalf("%d destinations", n)
	}
	if diff := cmp.Diff(traffic[0], r.Network.Traffic[0]); diff != "" {
		t.Error(diff)
	}
	if evil := r.Network.Traffic[1]; len(evil.Name) != maxTrafficText || len(evil.Reason) != maxTrafficText {
		t.Errorf("%+v", evil)
	}
	rec, err := w.store.Load(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	events, err := rec.Events()
	if err != nil {
		t.Fatal(err)
	}
	types := map[store.EventType]int{}
	for _, e := range events {
		if types[e.Type]++; e.Type == store.EventNetworkAllowed {
			var got sdk.Traffic
			if err := json.Unmarshal(e.Data, &got); err != nil || !cmp.Equal(got, traffic[0]) {
				t.Errorf("%s: %v", e.Data, err)
			}
		}
	}
	if types[store.EventNetworkAllowed] != 1 || types[store.EventNetworkDenied] != sdk.MaxTraffic-1 || types[store.EventExecEnd] != 1 {
		t.Errorf("events: %v", types)
	}
}

// What a command asks its network for is recorded while it runs, and a person can allow what it was denied, and nothing
// else.
func TestNetworkOpenedWhileItRuns(t *testing.T) {
	p := &plain{desc: filters}
	p.desc.Allow = true
	w := newWorld(t, p)
	p.exec = func(c *sdk.Command) (*sdk.Exit, error) {
		c.Started()
		c.Decided(sdk.Traffic{Name: "b.example", Port: 443, Add: "b.example:443"})
		list, err := w.store.List(store.Filter{})
		if err != nil || len(list) != 1 {
			return nil, fmt.Errorf("%d runs: %w", len(list), err)
		}
		rec, err := w.store.Load(list[0].ID)
		if err != nil {
			return nil, err
		}
		for _, rule := range []string{"*.example", "b.example", "b.example:443", "b.example:443"} {
			if err := rec.Allow(rule); err != nil {
				return nil, err
			}
		}
		select {
		case rule := <-c.Allows:
			if rule != "b.example:443" {
				t.Errorf("the command may reach %q", rule)
			}
		case <-time.After(time.Minute):
			t.Error("the command was not allowed what a person allowed it")
		}
		return &sdk.Exit{Cause: sdk.CauseExited}, nil
	}
	r := w.run(shell("true", "network {\n allow = [\"a.example\"]\n}"), Streams{})
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "b.example:443 while it ran") {
		t.Errorf("notes: %q", r.Notes)
	}
	rec, err := w.store.Load(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	events, err := rec.Events()
	if err != nil {
		t.Fatal(err)
	}
	var got []store.EventType
	for _, e := range events {
		if strings.HasPrefix(string(e.Type), "network.") {
			got = append(got, e.Type)
		}
	}
	if !slices.Equal(got, []store.EventType{store.EventNetworkDecided, store.EventNetworkOpened}) {
		t.Errorf("events: %q", got)
	}
	if err := rec.Allow("b.example:443"); err == nil {
		t.Error("a run that has ended was allowed more")
	}
	if rep, err := w.store.Verify(t.Context(), r.ID); err != nil || !rep.OK || len(rep.Findings) > 0 {
		t.Errorf("the record: %+v %v", rep, err)
	}
}

// A backend that cannot hold the rules is passed over, and alone the run is refused, where the rules were written.
func TestRulesThatCannotBeHeld(t *testing.T) {
	w := newWorld(t, &plain{}, &plain{desc: sdk.Description{Name: "other", Networks: filters.Networks}})
	src := "run \"r\" {\n  backend \"plain\" {}\n  backend \"other\" {}\n  command = [\"true\"]\n  network { allow = [\"a.example\"] }\n}\n"
	if r := w.run(src, Streams{}); r.Backend.Name != "other" || !r.OK {
		t.Errorf("%+v", r)
	}
	r := w.run(strings.Replace(src, "  backend \"other\" {}\n", "", 1), Streams{})
	if r.Error == nil || len(r.Error.Diagnostics) != 1 {
		t.Fatalf("%+v", r)
	}
	d := r.Error.Diagnostics[0]
	if want := `backend "plain" is not able: it cannot hold network.allow: it offers network none`; d.Summary != want || d.Range == nil || d.Range.Start.Line != 4 || d.Range.Start.Column != 21 || d.Fix == "" {
		t.Errorf("%+v", d)
	}
	def := w.load("run \"r\" {\n  backend \"plain\" {}\n  command = [\"true\"]\n}\n")[0]
	def = Overrides{Network: network.Network{Mode: sdk.NetworkFiltered, Allow: []string{"b.example"}}}.Apply(def)
	res, err := w.runner().Run(context.Background(), def, Streams{})
	if err != nil || res.Error == nil || res.Error.Diagnostics[0].Path != "--allow-host" {
		t.Errorf("%v %+v", err, res.Error)
	}
}
