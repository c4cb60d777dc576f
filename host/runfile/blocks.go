package runfile

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/hutch-run/hutch/host/diag"
)

// topSchema has the blocks of a run file.
var topSchema = schemaOf("",
	"hutch", "variable name", "locals", "model name", "run name", "generate name", "cycle name",
	"agent name")

// sortBlocks sorts what the file holds by kind, each kind in the order of the file.
func (l *loader) sortBlocks(body *hclsyntax.Body) {
	file := hcl.Range{Filename: l.path, Start: hcl.InitialPos, End: hcl.InitialPos}
	content, _ := l.content(body, topSchema, "a run file", "", file)
	l.blocks = content.Blocks.ByType()
	if len(l.blocks["run"])+len(l.blocks["generate"])+len(l.blocks["cycle"])+len(l.blocks["agent"]) == 0 && len(l.diags) == 0 {
		summary := "the file has no run block"
		if len(body.Blocks) == 0 {
			summary = "the file is empty"
		}
		l.failf(file, "", "%s", summary).
			detail("A run file says what to run in blocks such as:\n\n  run \"hello\" {\n    backend \"bwrap\" {}\n    " +
				"command = [\"echo\", \"hello\"]\n  }")
	}
}

// named calls decode for each block of a kind whose name is good and not that of an earlier one. The noun is what the
// kind is called in messages, and fix, which may be "", what to do about a bad name.
func (l *loader) named(kind, noun, fix string, decode func(b *hcl.Block)) {
	first := map[string]hcl.Range{}
	for _, b := range l.blocks[kind] {
		name := b.Labels[0]
		if !validRunName(name) {
			l.failf(b.LabelRanges[0], "", "%s cannot be the name of a %s", quote(name), noun).
				detail(runNameRule, noun).fix("%s", fix)
			continue
		}
		if r, ok := first[name]; ok {
			l.duplicate(b.LabelRanges[0], r, fmt.Sprintf("the %s %q is declared twice", noun, name))
			continue
		}
		first[name] = b.DefRange
		decode(b)
	}
}

func sortedAttributes(body *hclsyntax.Body) []*hclsyntax.Attribute {
	return slices.SortedFunc(maps.Values(body.Attributes), func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.SrcRange.Start.Byte, b.SrcRange.Start.Byte)
	})
}

// content takes a body apart. It says about what it does not know which names there are and which one was meant.
func (l *loader) content(body hcl.Body, schema *hcl.BodySchema, what, context string,
	header hcl.Range) (*hcl.BodyContent, bool) {
	content, diags := body.Content(schema)
	if l.options.AllowMissing {
		diags = slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool {
			return d.Summary == "Invalid dynamic block label" && strings.Contains(d.Detail, "not yet known")
		})
	}
	for _, d := range diags {
		out := l.sources.fromHCL(d, context)
		name := ""
		if d.Subject != nil {
			name = string(d.Subject.SliceBytes(l.sources[d.Subject.Filename]))
		}
		switch d.Summary {
		case "Unsupported argument":
			out.Summary = fmt.Sprintf("%s has no argument %q", what, name)
			out.Detail, out.Fix = unknownName(name, schema, true)
		case "Unsupported block type":
			name = strings.Trim(name, `"`)
			out.Summary = fmt.Sprintf("%s has no block %q", what, name)
			out.Detail, out.Fix = unknownName(name, schema, false)
		case "Missing required argument":
			if m := quotedName().FindStringSubmatch(d.Detail); m != nil {
				out.Summary = fmt.Sprintf("%s needs the argument %q", what, m[1])
				out.Detail, out.Fix = "", needed[m[1]]
				out = l.sources.at(out, header)
			}
		default:
			l.labels(&out, d, schema)
		}
		l.diags = append(l.diags, out)
	}
	return content, !diags.HasErrors()
}

// needed shows how the arguments look that a block cannot do without.
var needed = map[string]string{
	"task": `add task = "…", which says in words what is to be written`, "source": `add source = "."`,
	"condition":     "add condition = …, which is true for good values",
	"error_message": `add error_message = "…"`, "for_each": "add for_each = …",
}

var quotedName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"([^"]+)"`) })

// labels says better what is wrong with the labels of a block.
func (l *loader) labels(out *diag.Diagnostic, d *hcl.Diagnostic, schema *hcl.BodySchema) {
	for _, b := range schema.Blocks {
		switch {
		case d.Summary == "Extraneous label for "+b.Type && len(b.LabelNames) == 0:
			out.Summary, out.Detail, out.Fix = fmt.Sprintf("a %s block has no name", b.Type), "",
				fmt.Sprintf("write %s {", b.Type)
		case d.Summary == "Extraneous label for "+b.Type:
			out.Summary, out.Detail, out.Fix = fmt.Sprintf("a %s block has only one name", b.Type), "",
				fmt.Sprintf("write %s %q {", b.Type, strings.ToUpper(b.LabelNames[0]))
		case len(b.LabelNames) > 0 && d.Summary == fmt.Sprintf("Missing %s for %s", b.LabelNames[0], b.Type):
			out.Summary, out.Detail, out.Fix = fmt.Sprintf("this %s block has no %s", b.Type, b.LabelNames[0]), "",
				fmt.Sprintf("write %s %q {", b.Type, strings.ToUpper(b.LabelNames[0]))
			if d.Context != nil {
				*out = l.sources.at(*out, *d.Context)
			}
		}
	}
}

// unknownName says which names a body has, and what the wrong one was probably meant to be.
func unknownName(name string, schema *hcl.BodySchema, argument bool) (detail, fix string) {
	var args, blocks []string
	for _, a := range schema.Attributes {
		args = append(args, a.Name)
	}
	for _, b := range schema.Blocks {
		blocks = append(blocks, b.Type)
	}
	all := slices.Concat(args, blocks)
	switch {
	case argument && slices.Contains(blocks, name):
		return "", fmt.Sprintf("%s is a block: write %s without the equals sign", name, cmp.Or(blockForms[name], name+" { … }"))
	case !argument && slices.Contains(args, name):
		return "", fmt.Sprintf("%s is an argument: write %s = … with an equals sign", name, name)
	}
	fix = cmp.Or(habitsOf[schema][name], diag.DidYouMean(name, all))
	ofRun := func(b hcl.BlockHeaderSchema) bool { return b.Type == name }
	switch {
	case schema == topSchema && argument && slices.Contains(runSchema.Attributes, hcl.AttributeSchema{Name: name}):
		return "", fmt.Sprintf("move it into a run block: run \"NAME\" { %s = … }", name)
	case schema == topSchema && slices.ContainsFunc(runSchema.Blocks, ofRun):
		return "", fmt.Sprintf("move it into a run block: run \"NAME\" { %s … }", name)
	case fix != "":
		return "", fix
	case len(all) == 0:
		return "It takes no arguments.", ""
	case len(all) > 24:
		return "", ""
	case len(blocks) == 0:
		return "Its arguments are " + list(args) + ".", ""
	case len(args) == 0:
		return "Its blocks are " + list(blocks) + ".", ""
	}
	return "Its arguments are " + list(args) + "; its blocks are " + list(blocks) + ".", ""
}

// blockForms show blocks that users write as arguments.
var blockForms = map[string]string{
	"backend": `backend "NAME" {}`, "network": `network { mode = "full" }`, "workspace": `workspace { source = "." }`,
}

// habitsOf are names that users of other tools type in a block, with where the thing is here.
var habitsOf = map[*hcl.BodySchema]map[string]string{
	runSchema: habits, generateSchema: habits, modelSchema: modelHabits, cycleSchema: cycleHabits,
}

// habits are names that users of other tools type in a run block, with where the thing is here.
var habits = map[string]string{
	"timeout": "put it into limits: limits { timeout = \"30s\" }",
	"memory":  "put it into limits: limits { memory = \"512MiB\" }",
	"cpus":    "put it into limits: limits { cpus = 1 }", "pids": "put it into limits: limits { pids = 64 }",
	"pids_limit": "put it into limits: limits { pids = 64 }", "disk": "put it into limits: limits { disk = \"1GiB\" }",
	"output":       "put it into limits: limits { output = \"1MiB\" }",
	"output_total": "put it into limits: limits { output_total = \"64MiB\" }",
	"mode":         "put it into the workspace or the network block",
	"source":       "put it into a file, files or workspace block",
	"content":      "put it into a file block: file \"main.py\" { content = … }",
	"exit_code":    "put it into expect: expect { exit_code = 0 }",
	"image":        "it belongs to the backend: backend \"podman\" { image = … }", "cmd": "did you mean \"command\"?",
	"working_dir": "did you mean \"workdir\"?", "cwd": "did you mean \"workdir\"?", "dir": "did you mean \"workdir\"?",
	"environment": "did you mean \"env\"?", "requirements": "did you mean \"dependencies\"?",
	"packages": "did you mean \"dependencies\"?",
	"volumes": "mount the project with a workspace block, other directories with mount \"/PATH\" { source = " +
		"\"DIR\" }",
	"mounts": "mount the project with a workspace block, other directories with mount \"/PATH\" { source = " +
		"\"DIR\" }",
	"network_mode": "write network { mode = \"none\" }",
	"allow":        "put it into network: network { allow = [\"example.org:443\"] }",
	"deny":         "put it into network: network { allow = […]  deny = […] }",
	"script":       "did you mean \"entrypoint\"?",
	"main":         "did you mean \"entrypoint\"?",
	"count":        "use for_each: for_each = toset([\"a\", \"b\"])", "lang": "did you mean \"language\"?",
	"runtime":        "did you mean \"language\"?",
	"expect_outputs": "put them into expect: expect { outputs = [\"report.json\"] }", "prompt": "did you mean \"task\"?",
	"isolation": "did you mean \"min_isolation\"?",
}
