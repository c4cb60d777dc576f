package ui

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// record makes the record of a run that left files.
func (w *world) record(change func(*result.Result), files map[string]string) string {
	w.t.Helper()
	run, err := w.store.CreateRun(store.NewRun{Kind: store.KindRun, Name: "left", Definition: map[string]any{}})
	if err != nil {
		w.t.Fatal(err)
	}
	code := 0
	res := &result.Result{Schema: result.Schema, ID: run.ID(), Name: "left", Cause: sdk.CauseExited, ExitCode: &code, OK: true, Dir: run.Dir(), Started: time.Now(), Ended: time.Now()}
	for name, text := range files {
		p := filepath.Join(run.OutputDir(), name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		res.Outputs = append(res.Outputs, outputs.Output{Path: name, Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), Mode: "0600"})
	}
	if change != nil {
		change(res)
	}
	if _, err := run.Finish(store.End{OK: true, Cause: "exited", Result: res}); err != nil {
		w.t.Fatal(err)
	}
	return run.ID()
}

func picture(t *testing.T, encode func(*bytes.Buffer, image.Image) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b, image.NewPaletted(image.Rect(0, 0, 8, 8), color.Palette{color.Black})); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestFiles has pictures and tables on a run's page, and every file on an origin that can do nothing.
func TestFiles(t *testing.T) {
	w := newWorld(t)
	pixel := picture(t, func(b *bytes.Buffer, i image.Image) error { return png.Encode(b, i) })
	const svg = `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`
	id := w.record(nil, map[string]string{
		"plot.png": pixel, "anim.bin": picture(t, func(b *bytes.Buffer, i image.Image) error { return gif.Encode(b, i, nil) }),
		"evil.svg": svg, "page.html": "<script>alert(1)</script>", "not.png": "<html><script>alert(1)</script>",
		"totals.csv": "name,total\n\"<b>tea</b>\",3\ncoffee,4\n", "wide.tsv": "a\tb\n1\t2\n",
	})
	page := w.see("/runs/"+id, "<th scope=\"col\">total</th>", "&lt;b&gt;tea&lt;/b&gt;", "<td>coffee</td>", "<td>2</td>")
	address := map[string]string{}
	for _, m := range regexp.MustCompile(`<a href="(http[^"]+)"[^>]*>([^<]+)</a>`).FindAllStringSubmatch(page, -1) {
		address[m[2]] = m[1]
	}
	if shown := strings.Count(page, "<img "); shown != 2 {
		t.Errorf("%d pictures are shown, not 2", shown)
	}
	get := func(at string, change func(*http.Request)) (int, http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(r)
		}
		a, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		return a.StatusCode, a.Header
	}
	for name, kind := range map[string]string{"plot.png": "image/png", "anim.bin": "image/gif", "evil.svg": "", "page.html": "", "not.png": "", "totals.csv": ""} {
		code, h := get(address[name], nil)
		disposition := ""
		if kind == "" {
			kind, disposition = "application/octet-stream", "attachment; filename*=UTF-8''"+name
		}
		want := []string{"200", kind, disposition, filePolicy, "nosniff", "DENY", "same-site", "no-referrer"}
		got := []string{
			http.StatusText(code), h.Get("Content-Type"), h.Get("Content-Disposition"), h.Get("Content-Security-Policy"), h.Get("X-Content-Type-Options"),
			h.Get("X-Frame-Options"), h.Get("Cross-Origin-Resource-Policy"), h.Get("Referrer-Policy"),
		}
		want[0] = http.StatusText(http.StatusOK)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	good := address["plot.png"]
	origin := good[:strings.Index(good, "/"+id)]
	code := strings.Split(strings.TrimPrefix(good, origin+"/"), "/")[1]
	if err := os.Symlink("/etc/passwd", filepath.Join(w.store.Paths().Run(id), "output", "link")); err != nil {
		t.Fatal(err)
	}
	signed := func(name string) string { return w.files.address("127.0.0.1", id, name) }
	for what, c := range map[string]struct {
		at     string
		change func(*http.Request)
		want   int
	}{
		"a name that leads here":          {good, func(r *http.Request) { r.Host = "evil.example" }, 403},
		"the page's port as host":         {good, func(r *http.Request) { r.Host = strings.TrimPrefix(w.origin, "http://") }, 403},
		"a page of another site":          {good, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"a script of another origin":      {good, func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:3000") }, 403},
		"a form":                          {good, func(r *http.Request) { r.Method = http.MethodPost }, 405},
		"no code":                         {origin + "/" + id + "//" + ref("plot.png"), nil, 404},
		"the code of another file":        {origin + "/" + id + "/" + code + "/" + ref("totals.csv"), nil, 404},
		"the code of another run":         {origin + "/260101-000000-aaaaaa/" + code + "/" + ref("plot.png"), nil, 404},
		"a path out of the record":        {signed("../result.json"), nil, 404},
		"an absolute path":                {signed("/etc/passwd"), nil, 404},
		"a link":                          {signed("link"), nil, 404},
		"the directory":                   {signed("."), nil, 404},
		"a page of the other port":        {origin + w.guard.prefix + "/", nil, 404},
		"the top":                         {origin + "/", nil, 404},
		"the file on the page's own port": {strings.Replace(good, origin, w.origin, 1), nil, 401},
	} {
		if got, h := get(c.at, c.change); got != c.want || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d, want %d; %v", what, got, c.want, h)
		}
	}
}

func TestTables(t *testing.T) {
	many := strings.Repeat("1,2\n", maxRows+6)
	for _, c := range []struct {
		what, text string
		comma      rune
		cut        bool
		rows       int
		more       string
	}{
		{"nothing", "", ',', false, -1, ""},
		{"a head", "a,b\n", ',', false, 0, ""},
		{"ragged", "a,b\n1\n1,2,3\n", ',', false, 2, ""},
		{"quotes that do not end", "a,b\n\"1,2\n", ',', false, 1, ""},
		{"many rows", many, ',', false, maxRows, "5 more rows"},
		{"many columns", strings.Repeat("a\t", 60) + "\n", '\t', false, 0, "columns after 40 are left out"},
		{"a part of a file", "a,b\n1,2\n3,", ',', true, 1, "the file goes on"},
	} {
		got := readTable([]byte(c.text), c.comma, c.cut)
		switch {
		case got == nil:
			if c.rows != -1 {
				t.Errorf("%s: no table", c.what)
			}
		case len(got.Rows) != c.rows || got.More != c.more:
			t.Errorf("%s: %d rows, %q; want %d, %q", c.what, len(got.Rows), got.More, c.rows, c.more)
		}
	}
}

// FuzzTable reads any bytes as a table: it is bounded, and none of its cells can order a terminal about.
func FuzzTable(f *testing.F) {
	f.Add([]byte("a,b\n1,\"2\n3\"\n"), false)
	f.Add([]byte("\x1b[2J,\xff\n\"\"\"x\"y,\n"), true)
	f.Fuzz(func(t *testing.T, b []byte, cut bool) {
		for _, comma := range []rune{',', '\t'} {
			got := readTable(b, comma, cut)
			if got == nil {
				continue
			}
			if len(got.Rows) > maxRows {
				t.Errorf("%d rows", len(got.Rows))
			}
			for _, row := range append(got.Rows, got.Head) {
				if len(row) > maxColumns || strings.ContainsAny(strings.Join(row, ""), "\x1b\x00\n\u202e") {
					t.Errorf("the row %q", row)
				}
			}
		}
	})
}

// TestRunSays has on a run's page how close it came to its limits, and what would allow what the network denied.
func TestRunSays(t *testing.T) {
	w := newWorld(t)
	peak, pids := int64(48<<20), int64(3)
	id := w.record(func(r *result.Result) {
		r.File, r.Usage.Wall, r.Usage.PeakMemory, r.Usage.PIDs = "x.hcl", result.Seconds(time.Second), &peak, &pids
		r.Limits = []result.Limit{{Limit: sdk.LimitMemory, Value: "64MiB", HeldBy: "cgroup"}, {Limit: sdk.LimitTimeout, Value: "10s"}, {Limit: sdk.LimitFiles, Value: "1024"}}
		r.Network = result.Network{Mode: sdk.NetworkFiltered, Allow: []string{"a.example:443"}, Traffic: []sdk.Traffic{{Name: "b.example", Port: 443}}}
	}, nil)
	w.see("/runs/"+id, "<td>memory</td>", "48 MiB, 75 %", "1s, 10 %", "not known", "b.example:443 is not in network.allow",
		"allow = [&#34;a.example:443&#34;, &#34;b.example:443&#34;]", "hutch replay --allow-host b.example:443 "+id)
	if at := w.post("/runs/"+id+"/allow", url.Values{"rule": {"*.example"}}); !strings.Contains(at, "the run was not denied what") {
		t.Errorf("a rule that was not offered was taken:\n%s", at)
	}
	for want, list := range map[string][]sdk.Traffic{
		"": nil, "1 denied: b.example:443": {{Name: "b.example", Port: 443}},
		`3 allowed: a:1, b:1, …; 1 denied: \x1b[2J`: {{Name: "\x1b[2J"}, {Name: "a", Port: 1, Allowed: true}, {Name: "b", Port: 1, Allowed: true}, {Name: "c", Port: 1, Allowed: true}},
	} {
		if got := decidedText(list); got != want {
			t.Errorf("the card says %q, not %q", got, want)
		}
	}
}
