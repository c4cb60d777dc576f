package runfile

import (
	"os"

	"github.com/hutch-run/hutch/host/diag"
)

// Requirements reads what run files require of hutch and its backends, and nothing else: no variable needs a value, and
// nothing but the hutch blocks is evaluated. Each RunFile has no more than Path, Dir, RequiredBackends and
// MinIsolation.
func Requirements(paths []string) ([]*RunFile, diag.Diagnostics) {
	var files []*RunFile
	var diags diag.Diagnostics
	for _, p := range paths {
		l := newLoader(p, &Options{}, &given{lookupEnv: os.LookupEnv})
		if body := l.parse(); body != nil {
			l.sortBlocks(body)
			l.settings()
		}
		files = append(files, l.file)
		diags = append(diags, inOrder(l.diags)...)
	}
	return files, diags
}
