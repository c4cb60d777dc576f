// Package docs holds the pages that `hutch help TOPIC` prints: those that a user needs at a shell.
package docs

import "embed"

// Pages are by their path below docs.
//
//go:embed agents.md ci.md cycle.md e2b.md generate.md ingest.md installing-backends.md kubernetes.md lima.md mcp.md models.md
//go:embed network.md packages.md replay.md serve.md tasks.md threat-model.md tutorial.md ui.md user-guide.md
//go:embed writing-a-backend.md reference/backends reference/events.md reference/habits.md reference/limits.md reference/result.md
//go:embed reference/runfile.md reference/tools.md
var Pages embed.FS
