package main

import (
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/backendtest"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Suite{
		New:    func() sdk.Backend { return &backend{} },
		Config: map[string]any{"marker": "healthy", "exchange": true, "defaults": true},
		BadConfigs: []backendtest.BadConfig{
			{Name: "in a list", Config: map[string]any{"refuse_limits": []string{"memory", "gravity"}}, Path: "refuse_limits[1]"},
			{Name: "in a block", Config: map[string]any{"option": []any{map[string]any{"even": 2}, map[string]any{"even": 3}}}, Path: "option[1].even"},
			{Name: "in a map in a block", Config: map[string]any{"option": []any{map[string]any{"even": 2, "table": map[string]string{"A B": "wrong"}}}}, Path: `option[0].table["A B"]`},
		},
	})
}
