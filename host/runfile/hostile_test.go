package runfile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// write puts a run file into its own directory.
func write(t testing.TB, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "run.hcl")
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

const tail = "\nrun \"a\" {\n  command = [\"true\"]\n}\n"

// expected are the reasons for which a hostile file is refused.
var expected = regexp.MustCompile(`the file is too complex|costs too much|more than 24 aliases|nested more than [15]00 deep|above 999|` +
	`at most 512KiB are read|at most 1000 are allowed|no function "templatefile"`)

// TestHostileFilesEndSoon holds what HCL-02 asks for: an error within two seconds and 256 MiB, whatever the file says.
func TestHostileFilesEndSoon(t *testing.T) {
	chain := func(first, step string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "locals {\n  v0 = %s\n", first)
		for i := 1; i <= 60; i++ {
			fmt.Fprintf(&b, "  v%d = %s\n", i, strings.ReplaceAll(step, "@", fmt.Sprintf("local.v%d", i-1)))
		}
		return b.String() + "  end = jsonencode(local.v60)\n}" + tail
	}
	local := func(expr string) string { return "locals {\n  x = " + expr + "\n}" + tail }
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x]\\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	quadruple := "range(1000)"
	doubling := "jsonencode([z, z])"
	for c := 'z'; c > 'a'; c-- {
		doubling = fmt.Sprintf("[for %c in [[%c, %c]] : %s]", c, c-1, c-1, doubling)
	}
	doubling = "[for a in [[1, 1]] : " + doubling + "]"
	for name, src := range map[string]string{
		"brackets":             local(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)),
		"a million brackets":   local(strings.Repeat("[", 140_000)),
		"parentheses":          local(strings.Repeat("(", 10_000) + "1" + strings.Repeat(")", 10_000)),
		"braces":               local(strings.Repeat("{a=", 10_000) + "1" + strings.Repeat("}", 10_000)),
		"blocks":               strings.Repeat("a {\n", 100_000),
		"templates":            local(strings.Repeat(`"${`, 10_000) + "1" + strings.Repeat(`}"`, 10_000)),
		"directives":           local("<<END\n" + strings.Repeat("%{ if true }", 30_000) + "\nEND"),
		"loops in directives":  local("<<END\n" + strings.Repeat("%{ for x in range(1000) }", 6) + "y" + strings.Repeat("%{ endfor }", 6) + "\nEND"),
		"signs":                local(strings.Repeat("-", 140_000) + "1"),
		"bangs":                local(strings.Repeat("!", 140_000) + "true"),
		"sums":                 local(strings.Repeat("1+", 70_000) + "1"),
		"sums in parentheses":  local("(" + strings.Repeat("1+\n", 45_000) + "1)"),
		"conditions":           local(strings.Repeat("true ? 1 : ", 28_000) + "1"),
		"indexes":              local("a" + strings.Repeat("[b]", 45_000)),
		"splats":               local("a" + strings.Repeat("[*]", 45_000)),
		"calls":                local(strings.Repeat("abs(", 70_000)),
		"many words":           local("[" + strings.Repeat("1,", 250_000) + "]"),
		"many lines":           "locals {\n" + strings.Repeat("a=1\n", 125_000) + "}" + tail,
		"a heredoc of lines":   local("<<END\n" + strings.Repeat("\n", 500_000) + "END"),
		"nested loops":         local("[for a in " + quadruple + " : [for b in " + quadruple + " : [for c in " + quadruple + " : 1]]]"),
		"loops with a filter":  local("[for a in " + quadruple + " : [for b in " + quadruple + " : [for c in " + quadruple + " : 1 if false]]]"),
		"loops in try":         local("try([for a in " + quadruple + " : [for b in " + quadruple + " : [for c in " + quadruple + " : 1]]], 1)"),
		"loops that fail":      local("[for a in " + quadruple + " : [for b in " + quadruple + " : a.x]]"),
		"loops over objects":   local("{for a in " + quadruple + " : a => {for b in " + quadruple + " : b => {for c in " + quadruple + " : c => 1}}}"),
		"a splat with loops":   local(quadruple + "[*][[for b in " + quadruple + " : [for c in " + quadruple + " : 1]][0][0]]"),
		"comparisons":          "locals {\n  l = range(1000)\n  x = [for a in local.l : [for b in local.l : local.l == local.l]]\n}" + tail,
		"conditionals":         "locals {\n  l = [for i in range(1000) : range(50)]\n  x = [for a in range(1000) : true ? local.l : local.l]\n}" + tail,
		"products":             local("setproduct(" + strings.Repeat("range(1000),", 5) + "range(1000))"),
		"distinct":             local("distinct([for a in range(1000) : a])") + "locals {\n  y = [for i in range(1000) : distinct(local.x)]\n}\n",
		"contains":             "locals {\n  l = range(1000)\n  x = [for a in range(1000) : [for b in range(1000): contains(local.l, -1)]]\n}" + tail,
		"doubled text":         chain(`"0123456789"`, `"${@}${@}"`),
		"doubled text, joined": chain(`"0123456789"`, `join(@, ["", "", ""])`),
		"replaced text":        chain(`"0123456789"`, `replace(@, "", @)`),
		"replaced by matches":  chain(`"0123456789"`, `replace(@, "/.*/", "$0$0")`),
		"formatted text":       chain(`"0123456789"`, `format("%s%s", @, @)`),
		"formatted lists":      chain(`"0123456789"`, `join("", formatlist("%s", [@, @]))`),
		"indented text":        local(`indent(1000000000, "a\nb")`),
		"a wide format":        local(`format("%1000000000d", 1)`),
		"a precise format":     local(`format("%.1000000000f", 1)`),
		"a wide float":         local(`format("%-1000000000.3f|", 1)`),
		"doubled lists":        chain(`[1]`, `[@, @]`),
		"doubled objects":      chain(`{ a = 1 }`, `{ a = @, b = @ }`),
		"concatenated lists":   chain(`[1]`, `concat(@, @)`),
		"nested in loops":      local(strings.Repeat("[for a in [1, 1] : ", 40) + "1" + strings.Repeat("]", 40)),
		"doubling in a loop":   local(doubling),
		"a huge number":        local(`"${1e600000000}"`),
		"a huge product":       chain(`1e300`, `@ * @`),
		"a number from text":   local(`upper(tonumber("1e600000000"))`),
		"a huge JSON number":   local(`tostring(jsondecode("1e600000000"))`),
		"parsed digits":        local(`[for i in range(1000) : parseint(join("", [for j in range(1000) : "9999999999"]), 10)]`),
		"YAML aliases":         local(`yamldecode("` + bomb + `")`),
		"nested YAML":          local(`yamldecode(join("", [for i in range(1000) : "[[[[[[[[[[[[[[[[[[[["]))`),
		"nested JSON":          local(`jsondecode(join("", [for i in range(1000) : "[[[[[[[[[[[[[[[[[[[["]))`),
		"deeply nested JSON":   local(`jsondecode(join("", [for i in range(1000) : "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["]))`),
		"deep data as JSON":    local(`jsondecode(file("data"))`) + "# deep\n",
		"a slow expression":    local(`[for i in range(1000) : regexall("(x{1,900}){1}y", join("", [for j in range(1000) : "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"]))]`),
		"dynamic blocks":       "locals {\n  l = range(1000)\n}\nrun \"a\" {\n  command = [\"true\"]\n  dynamic \"file\" {\n    for_each = [for a in local.l : [for b in local.l : b]][*]\n    labels = [\"f${file.key}\"]\n    content {\n      content = join(\",\", flatten([for x in local.l : [for y in local.l : y]]))\n    }\n  }\n}\n",
		"many instances":       "run \"a\" {\n  for_each = toset([for i in range(1000) : tostring(i)])\n  command = [for i in range(1000) : tostring(i)]\n}\n",
		"too many keys":        "run \"a\" {\n  for_each = toset(flatten([for i in range(40) : [for j in range(40) : \"${i}-${j}\"]]))\n  command = [\"true\"]\n}\n",
		"template in itself":   "run \"a\" {\n  command = [templatefile(\"run.hcl\", {})]\n}\n# ${templatefile(\"run.hcl\", {})}\n",
		"split data":           local(`split("", file("data"))`),
		"matches in data":      local(`regexall(".", file("data"))`),
		"data as JSON":         local(`jsondecode(file("data"))`),
		"data as CSV":          local(`csvdecode("a,b\n${file("data")}")`),
		"data as a template":   local(`templatefile("data", {})`),
		"data many times":      local(`[for i in range(1000) : file("data")]`),
		"hashed many times":    local(`[for i in range(1000) : filesha256("data")]`),
		"encoded again":        chain(`"\"\\\\"`, `jsonencode(@)`),
		"encoded to base64":    chain(`"0123456789"`, `base64encode(@)`),
	} {
		t.Run(name, func(t *testing.T) {
			p := write(t, src)
			if strings.Contains(src, `"data"`) {
				data := "[" + strings.Repeat("1,", 2<<20-10) + "1]"
				if strings.Contains(src, "# deep") {
					data = strings.Repeat("[", 4<<20)
				}
				if err := os.WriteFile(filepath.Join(filepath.Dir(p), "data"), []byte(data), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			runtime.GC()
			var before runtime.MemStats
			runtime.ReadMemStats(&before)
			peak := watchHeap(t)
			start := time.Now()
			_, diags := Load([]string{p}, Options{Environ: []string{}})
			took := time.Since(start)
			most := peak()
			if !diags.HasErrors() {
				t.Error("the file was accepted")
			}
			// A quiet machine needs a tenth of a second for most, a busy one much more; without its bound each takes minutes.
			if took > 20*time.Second*slack {
				t.Errorf("took %v", took)
			}
			if most > 256<<20 {
				t.Errorf("used %d MiB", most>>20)
			}
			// A mistake in the test itself would be an error too, and prove nothing.
			if says := diags[0].Summary + " " + diags[0].Detail; !expected.MatchString(says) {
				t.Errorf("refused for another reason: %s", says)
			}
			if len(diags) > 60 {
				t.Errorf("%d diagnostics", len(diags))
			}
			var text strings.Builder
			if err := diags.Write(&text, testStyle); err != nil {
				t.Fatal(err)
			}
			if text.Len() > 100_000 {
				t.Errorf("%d bytes of messages", text.Len())
			}
		})
	}
}

// watchHeap samples the heap until the returned function is called, which gives the largest size seen.
func watchHeap(t *testing.T) func() uint64 {
	t.Helper()
	stop, done := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc+m.StackInuse)
			select {
			case <-stop:
				done <- most
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 { close(stop); return <-done }
}

func TestLargeFilesAreNotRead(t *testing.T) {
	p := filepath.Join(t.TempDir(), "large.hcl")
	f, err := os.Create(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(100 << 20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, diags := Load([]string{p}, Options{})
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; !strings.Contains(diags.Error(), "at most 512 KiB are read") || used > 10<<20 {
		t.Errorf("got %v after %d bytes", diags, used)
	}
	if _, diags = Load([]string{"/dev/zero"}, Options{}); !strings.Contains(diags.Error(), "larger than 512 KiB") {
		t.Errorf("got %v", diags)
	}
}

// TestSourcesStayInside tries every way out of the run file's directory.
func TestSourcesStayInside(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(outside, "secret"), []byte("root:x"), 0o644))
	must(os.Mkdir(in("sub"), 0o755))
	must(os.WriteFile(in("sub/real.txt"), []byte("inside"), 0o644))
	must(os.Symlink(filepath.Join(outside, "secret"), in("absolute")))
	must(os.Symlink("../"+filepath.Base(outside)+"/secret", in("relative")))
	must(os.Symlink(outside, in("outdir")))
	must(os.Symlink("sub/real.txt", in("inside")))
	must(os.Symlink("sub", in("subdir")))
	must(os.Symlink("loop", in("loop")))
	must(syscall.Mkfifo(in("fifo"), 0o644))
	must(os.WriteFile(in("big"), nil, 0o644))
	must(os.Truncate(in("big"), MaxFileSize+1))
	listen(t, in("socket"))

	for source, want := range map[string]string{
		"sub/real.txt":                   "",
		"inside":                         "",
		"subdir/real.txt":                "",
		"./sub/../sub/real.txt":          "",
		in("sub/real.txt"):               "",
		"absolute":                       "symbolic link that leads out",
		"relative":                       "symbolic link that leads out",
		"outdir/secret":                  "symbolic link that leads out",
		"../" + filepath.Base(outside):   "leads out of the directory",
		"sub/../../x":                    "leads out of the directory",
		filepath.Join(outside, "secret"): "lies outside the directory",
		"/etc/passwd":                    "lies outside the directory",
		"loop":                           "loop of symbolic links",
		"fifo":                           "is a FIFO",
		"socket":                         "is a socket",
		"sub":                            "is a directory",
		"big":                            "at most 64MiB are read",
		"sub/real.txt/x":                 "as if it were a directory",
		"none":                           "there is no",
		"a\x00b":                         "NUL",
		strings.Repeat("x", 300):         "too long",
		strings.Repeat("x/", 3000):       "at most 4096",
	} {
		for _, text := range []string{
			"run \"a\" {\n  command = [\"true\"]\n  file \"f\" {\n    source = %s\n  }\n}\n",
			"run \"a\" {\n  command = [filesha256(%s)]\n}\n",
		} {
			must(os.WriteFile(in("run.hcl"), []byte(fmt.Sprintf(text, quoteHCL(source))), 0o644))
			config, diags := Load([]string{in("run.hcl")}, Options{})
			if want == "" {
				if diags.HasErrors() {
					t.Errorf("%.40q: %v", source, diags)
					continue
				}
				if f := config.Runs()[0].Files; len(f) == 1 {
					r, err := f[0].Open()
					must(err)
					b := make([]byte, 10)
					n, _ := r.Read(b)
					must(r.Close())
					if string(b[:n]) != "inside" {
						t.Errorf("%q reads %q", source, b[:n])
					}
				}
				continue
			}
			got := ""
			for _, d := range diags {
				got += d.Summary + " " + d.Detail
			}
			if !strings.Contains(strings.ToLower(got), strings.ToLower(want)) {
				t.Errorf("%.40q: got %q, want %q", source, got, want)
			}
		}
	}
}

func quoteHCL(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\x00", `\u0000`).Replace(s) + `"`
}

// TestFilesTree checks what a files block takes and what it says of the rest.
func TestFilesTree(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"src/a.py", "src/sub/b.py", "src/.hidden", "src/.git/config", "src/sub/c.txt"} {
		p := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range [][2]string{{"sub", "src/linkdir"}, {"a.py", "src/link.py"}, {"/etc/passwd", "src/out"}} {
		if err := os.Symlink(l[0], filepath.Join(dir, l[1])); err != nil {
			t.Fatal(err)
		}
	}
	load := func(args string) ([]string, string) {
		p := filepath.Join(dir, "run.hcl")
		if err := os.WriteFile(p, []byte("run \"a\" {\n  command = [\"true\"]\n  files {\n    source = \"src\"\n"+args+"  }\n}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		config, diags := Load([]string{p}, Options{})
		var names []string
		for _, f := range config.Runs()[0].Files {
			names = append(names, f.Path)
		}
		text := ""
		for _, d := range diags {
			text += string(d.Severity) + ": " + d.Summary + "\n"
		}
		return names, text
	}
	for _, c := range []struct{ args, want, says string }{
		{"", ".hidden a.py link.py sub/b.py sub/c.txt", "warning: \"linkdir\" is a symbolic link that is not followed\nwarning: \"out\" is a symbolic link that is not followed\n"},
		{"    exclude = [\"linkdir\", \"out\", \"sub\"]\n", ".hidden a.py link.py", ""},
		{"    include = [\"*.py\"]\n", "a.py link.py", ""},
		{"    include = [\"**/*.py\"]\n    exclude = [\"**/b.*\", \"link*\"]\n", "a.py", ""},
		{"    include = [\".git/**\"]\n", ".git/config", ""},
	} {
		names, says := load(c.args)
		if got := strings.Join(names, " "); got != c.want || says != c.says {
			t.Errorf("%s: got %q, %q; want %q, %q", c.args, got, says, c.want, c.says)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "src/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, says := load(""); !strings.Contains(says, `"src/fifo" is a FIFO, not a regular file`) {
		t.Errorf("says %q", says)
	}
}

// TestUnreadableSource needs a user whom permissions bind: root becomes one, in its own process.
func TestUnreadableSource(t *testing.T) {
	if os.Getuid() == 0 {
		asNobody(t)
		return
	}
	p := write(t, "run \"a\" {\n  command = [\"true\"]\n  file \"f\" {\n    source = \"closed\"\n  }\n}\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(p), "closed"), []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	if _, diags := Load([]string{p}, Options{}); !strings.Contains(diags.Error(), "may not be read by this user") {
		t.Errorf("got %v", diags)
	}
}

// asNobody runs the test again as a user without rights, from a copy of the test binary which that user may read.
func asNobody(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "hutch-nobody-") // t.TempDir lies below a directory of root's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o777), os.WriteFile(dir+"/test", self, 0o755), os.Chmod(dir+"/test", 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(dir+"/test", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

func TestSourceThatGrows(t *testing.T) {
	p := write(t, "run \"a\" {\n  command = [\"true\"]\n  file \"f\" {\n    source = \"data\"\n  }\n}\n")
	data := filepath.Join(filepath.Dir(p), "data")
	if err := os.WriteFile(data, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	config, diags := Load([]string{p}, Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	f := config.Runs()[0].Files[0]
	if err := os.Truncate(data, MaxFileSize+1); err != nil {
		t.Fatal(err)
	}
	if r, err := f.Open(); err == nil {
		r.Close()
		t.Error("a source that grew past the limit was opened")
	}
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", data); err != nil {
		t.Fatal(err)
	}
	if r, err := f.Open(); err == nil {
		r.Close()
		t.Error("a source that became a link out of the directory was opened")
	}
}
