package deps

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	goodRequirements = "# pip-compile\r\nb==1.0 \\\n    --hash=sha256:00aa \\\n    --hash=sha256:11bb\n    # via a\n\na[x,y]===2!3.0+local ; python_version < \"4\" --hash=sha512:cc  # mine\n"
	goodLock         = `{"lockfileVersion": 3, "packages": {"": {"dependencies": {"a": "^1"}},
		"node_modules/a": {"version": "1.0.0", "resolved": "https://registry.npmjs.org/a/-/a-1.0.0.tgz", "integrity": "sha512-AA=="},
		"node_modules/a/node_modules/@s/b": {"version": "2.0.0", "resolved": "https://other.example/b.tgz", "integrity": "sha512-BB==", "dev": true},
		"node_modules/a/node_modules/c": {"version": "3.0.0", "inBundle": true}}}`
)

func TestParseLock(t *testing.T) {
	for _, tc := range []struct {
		lang, text     string
		packages, urls []string
		bad            string
	}{
		{lang: "python", text: goodRequirements, packages: []string{"b==1.0", "a[x,y]===2!3.0+local"}},
		{lang: "javascript", text: goodLock, packages: []string{"@s/b@2.0.0", "a@1.0.0", "c@3.0.0"}, urls: []string{"https://other.example/b.tgz"}},
		{lang: "javascript", text: `{"packages": {"": {}, "node_modules/a": {"version": "1", "resolved": "http://169.254.169.254/a", "integrity": "sha512-A"},
			"node_modules/b": {"version": "1", "resolved": "http://127.0.0.1:8080/b", "integrity": "sha512-A"}, "node_modules/c": {"version": "1", "resolved": "http://HOST.:11434/c", "integrity": "sha512-A"},
			"node_modules/d": {"version": "1", "resolved": "http://[::1]:8080/d", "integrity": "sha512-A"}, "node_modules/e": {"version": "1", "resolved": "http://10.0.0.1/e", "integrity": "sha512-A"}}}`,
			packages: []string{"a@1", "b@1", "c@1", "d@1", "e@1"}},
		{lang: "ruby", text: "x", bad: "hutch installs from no lock file of ruby"},
		{lang: "python", text: "# nothing\n", bad: "it has no packages"},
		{lang: "python", text: "a==1\n", bad: `"a==1" has no --hash`},
		{lang: "python", text: "a==1 --hash=md5:00\n", bad: `"a==1 --hash=md5:00" does not pin`},
		{lang: "python", text: "a>=1 --hash=sha256:00\n", bad: `"a>=1" does not pin a version`},
		{lang: "python", text: "a==1.* --hash=sha256:00\n", bad: `"a==1.*" does not pin`},
		{lang: "python", text: "a @ https://x.example/a.whl --hash=sha256:00\n", bad: "does not pin"},
		{lang: "python", text: "a==1 --hash=sha256:00 --global-option=x\n", bad: "does not pin"},
		{lang: "python", text: "--extra-index-url https://x.example\n", bad: "is an option of the installer"},
		{lang: "python", text: "-r other.txt\n", bad: `"-r other.txt" is an option`},
		{lang: "javascript", text: "[]", bad: "it is not a package-lock.json"},
		{lang: "javascript", text: `{"lockfileVersion": 1}`, bad: "it is not a package-lock.json of npm 7 or newer"},
		{lang: "javascript", text: `{"packages": {"": {}, "node_modules/a": {"version": "1.0.0", "resolved": "git+ssh://git@x.example/a.git#00"}}}`, bad: `"node_modules/a" has no integrity`},
		{lang: "javascript", text: `{"packages": {"": {}, "node_modules/a": {"resolved": "https://u:p@x.example/a", "integrity": "sha512-A"}}}`, bad: "holds credentials"},
		{lang: "javascript", text: `{"packages": {"": {}, "node_modules/a": {"resolved": "lib/a", "link": true}}}`, bad: "is a directory of the project"},
		{lang: "javascript", text: `{"packages": {"": {}, "lib/a": {}}}`, bad: "is a directory of the project"},
	} {
		l, err := ParseLock(tc.lang, tc.text)
		if tc.bad != "" {
			if err == nil || !strings.Contains(err.Error(), tc.bad) {
				t.Errorf("%s %q: %v, want %s", tc.lang, tc.text, err, tc.bad)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.lang, err)
		} else if diff := cmp.Diff([][]string{tc.packages, tc.urls}, [][]string{l.Packages, l.URLs}); diff != "" {
			t.Errorf("%s: %s", tc.lang, diff)
		}
	}
}

// FuzzParseLock sees to it that what is installed has a digest each.
func FuzzParseLock(f *testing.F) {
	f.Add("python", goodRequirements)
	f.Add("javascript", goodLock)
	f.Fuzz(func(t *testing.T, lang, text string) {
		l, err := ParseLock(lang, text)
		if err != nil {
			return
		}
		if lang == "python" && (len(l.Packages) == 0 || strings.Count(text, "--hash") < len(l.Packages)) {
			t.Errorf("%q: %q", text, l.Packages)
		}
		for _, p := range l.Packages {
			if lang == "python" && strings.HasPrefix(p, "-") {
				t.Errorf("%q is an option", p)
			}
		}
	})
}
