package security

// hostCase is an attempt on the host's own programs: what it parses, writes and shows. Its test runs with its package.
type hostCase struct {
	id, attempt, outcome string
	test                 string // package and function
}

var hostCases = []hostCase{
	// Paths of the file tools.
	{"PATH-01", "read `../../etc/passwd`, `/etc/passwd`, `a/../../x`", "an error that names the path", "host/workspace/files TestPathsThatLeadOut"},
	{"PATH-02", "a link to a host file, read and written through", "refused; the target is unchanged", "host/workspace/files TestPathsThatLeadOut"},
	{"PATH-05", "a sparse file of 1 TiB, read and searched", "an error that names the size", "host/workspace/files TestHostileFiles"},
	{"PATH-06", "paths with NUL, empty, `.`, of 5,000 bytes, `-rf`, a newline", "a clear error or that very file", "host/workspace/files TestPathsThatLeadOut"},
	{"PATH-07", "a file with several links, placed in the layer, then written", "refused; the other name is unchanged", "host/workspace/files TestHostileFiles"},
	{"PATH-08", "whiteouts made by the payload", "treated as data", "host/workspace/files TestDeviceZeroIsData"},
	{"PATH-09", "directories, files and links exchanged while the host works on them", "nothing outside is read or written", "test/security TestSwappedPaths"},

	// Archives.
	{"ARC-01", "tar names `../evil`, `/abs`, `a/../../x`", "the whole archive is refused", "plugins/e2b TestHostileArchives"},
	{"ARC-02", "links that lead out, chains of links", "refused", "plugins/e2b TestHostileArchives"},
	{"ARC-03", "devices, FIFOs, set-id modes, foreign owners", "refused or dropped", "plugins/e2b TestWhatIsLeftOfAnEntry"},
	{"ARC-04", "names equal but for case or Unicode form, names given twice", "refused with both names", "plugins/e2b TestHostileArchives"},
	{"ARC-05", "bombs: zeros, a million entries, depth, false sizes", "stops at the cap; nothing is left", "plugins/e2b TestBombs"},
	{"ARC-06", "the same in a tree of a local backend", "the whole tree is refused", "sdk/tree TestUnpackRefusesTheWholeHostileTree"},

	// Commits.
	{"GIT-01", "a bundle cut short or with a flipped byte", "refused; the branch does not move", "host/git/bundle TestHostile"},
	{"GIT-02", "refs `-x`, `../../evil`, `--upload-pack=…`, `refs/replace/*`", "only the expected ref is taken", "host/git/bundle TestHostile"},
	{"GIT-04", "a link to /etc in the tree", "refused", "host/git/bundle TestHostile"},
	{"GIT-06", "unrelated or rewritten history, missing prerequisite", "refused with a plain message", "host/git/bundle TestHostile"},
	{"GIT-07", "a blob of 1 GiB in a bundle of 1 MB", "refused by its size before git reads it", "host/git/bundle TestHostile"},
	{"GIT-08", "a submodule whose URL is an option", "submodules are never initialised", "host/git/bundle TestHostile"},

	// Run files.
	{"HCL-01", "`file(\"/etc/shadow\")`, `file(\"../x\")`", "confined to the run file's directory", "host/runfile TestSourcesStayInside"},
	{"HCL-02", "10,000 brackets, 100 MB, an expression with 10⁹ items", "an error within seconds, bounded memory", "host/runfile TestHostileFilesEndSoon"},
	{"HCL-03", "unknown block, duplicate, NUL, no UTF-8", "an error with line and column", "host/runfile TestBad"},

	// Answers of models.
	{"LLM-01", "absolute, climbing, duplicate and colliding paths in an answer", "refused before any write", "host/agent/ingest TestCorpus"},
	{"LLM-03", "200 MB, 50,000 files, cut JSON, duplicate keys", "an error; bounded memory and time", "host/agent/ingest TestHostileSizes"},
	{"LLM-05", "output that speaks to the model", "passed as quoted data", "host/agent/generate TestOutputCannotSpeakToTheModel"},

	// Output.
	{"OUT-01", "endless output", "the tail is kept; memory stays bounded", "host/run TestMuchOutputNeedsLittleMemory"},
	{"OUT-02", "terminal escape sequences", "made visible", "cmd/hutch TestTerminalIsSafe"},
	{"OUT-03", "a line that looks like an event", "cannot forge an event", "host/store TestDataCannotForgeAnEvent"},

	// Backends.
	{"PLG-01", "the backend is killed during a command", "the run fails and says why; the sandbox is removed", "host/run TestPluginKilledDuringExec"},
	{"PLG-02", "a program that prints garbage, other versions, nothing", "an error within the start timeout", "host/backend TestStartErrors"},
	{"PLG-03", "one byte of an installed backend changed", "refused before it starts", "host/backend TestTheCacheNoticesChanges"},
	{"PLG-05", "hutch is killed", "sandbox and backend are gone, or `hutch gc` removes them", "test/crash TestKilledHost"},
	{"PLG-06", "a stranger on the backend's socket", "refused", "host/backend TestPeersAreChecked"},
	{"PLG-07", "noise, forged log lines, huge messages", "bounded and attributed", "host/backend TestNoise"},

	// The store.
	{"STO-01", "kill -9 during appends, many times", "at most the last event is lost", "host/store TestKilledInALoop"},
	{"STO-02", "a full disk", "a clear error; earlier runs stay readable", "host/store TestNoSpace"},
	{"STO-03", "any byte of a chain flipped, any tail cut", "reported", "host/store TestEveryFlippedByteOfAChainShows"},
	{"STO-04", "two writers", "no event lost or mixed", "host/store TestTwoWriters"},

	// MCP over HTTP.
	{"MCP-01", "a foreign Host or Origin", "403", "host/agent/mcp TestHTTPRefuses"},
	{"MCP-02", "a POST without the token, a GET with an effect", "401 or 405", "host/agent/mcp TestHTTPRefuses"},

	// The web page.
	{"UI-01", "requests to `hutch ui` without its cookie, from other hosts, origins and forms; see [the table](#the-web-page)", "401, 403 or 405", "host/ui TestAttempts"},
	{"UI-02", "names, contents and output as HTML, escape sequences and bidirectional text on a page", "shown, never obeyed", "host/ui TestHostile"},
	{"UI-03", "a file that changes after it was looked at", "not applied", "host/ui TestWhatWasLookedAtIsApplied"},
	{"UI-05", "outputs of a run as HTML, SVG or script, under a picture's name, by links, other runs' codes and other sites", "only pictures are shown, from a sandboxed origin; 401, 403, 404 or 405", "host/ui TestFiles"},
	{"UI-04", "in Chromium: another server at 127.0.0.1 sends a form, a foreign name leads to the page", "refused; the other server never sees the cookie", "test/ui TestJourney"},

	// Other backends.
	{"LIM-01", "a server on the VM's loopback", "not reachable on the host", "plugins/lima TestPortsStayInTheGuest"},
	{"E2B-01", "the host dies after the machine is made", "the service ends the machine; its id is on record", "plugins/e2b TestServiceEndsWhatNobodyKeeps"},
	{"E2B-02", "the API key in files or environment of the machine", "absent", "plugins/e2b TestKeyStaysHere"},
}
