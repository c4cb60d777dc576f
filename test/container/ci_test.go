package container

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/sdk/confined"
	"github.com/hutch-run/hutch/test/e2e"
)

const top = "../.."

// page is docs/ci.md.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(top + "/docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// part is what the group of a regular expression matches in the page.
func part(t *testing.T, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(page(t))
	if m == nil {
		t.Fatalf("docs/ci.md has nothing like %s", pattern)
	}
	return m[1]
}

// decode reads a YAML file of the project.
func decode(t *testing.T, name string, to any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}

// project is a checkout with the run file of the page, and tests that fail the first time if they can tell.
func project(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir := directory(t, mode)
	for name, text := range map[string]string{
		"ci.hcl":  part(t, "(?s)```hcl\n(.*?)```"),
		"test.sh": "echo tested >$HUTCH_OUTPUT/report.txt\necho it runs\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// reported checks what a job leaves for its service.
func reported(t *testing.T, dir, said string) {
	t.Helper()
	junit, err := os.ReadFile(filepath.Join(dir, "hutch.xml"))
	if err != nil || !strings.Contains(string(junit), `tests="1" failures="0" errors="0"`) {
		t.Errorf("JUnit: %v\n%s\n%s", err, junit, said)
	}
	report, err := os.ReadFile(filepath.Join(dir, "hutch-outputs/test/report.txt"))
	if err != nil || string(report) != "tested\n" {
		t.Errorf("outputs: %q, %v\n%s", report, err, said)
	}
	if !strings.Contains(said, "it runs") {
		t.Errorf("the job says\n%s", said)
	}
}

// options translates options of docker to those of podman, which stands for it.
func options(docker []string) []string {
	var out []string
	for _, o := range docker {
		switch o {
		case "systempaths=unconfined":
			o = "unmask=ALL"
		case "apparmor=unconfined": // there may be no AppArmor here
			out = out[:len(out)-1]
			continue
		}
		out = append(out, o)
	}
	return out
}

// TestGitLab runs the script of ci/gitlab.yml as the docker executor does: with the runner's settings of the page, in a
// checkout that everybody may write.
func TestGitLab(t *testing.T) {
	image := podmantest.Bubblewrap(t)
	var file map[string]struct {
		Image struct {
			Docker struct{ User string }
		}
		Variables map[string]string
		Script    []string
	}
	decode(t, "ci/gitlab.yml", &file)
	job := file[".hutch"]
	dir := project(t, 0o777)
	flags := []string{"--user=" + job.Image.Docker.User, "-v", dir + ":/builds/group/project", "-w", "/builds/group/project",
		"-e", "GITLAB_CI=true", "-e", "CI_PROJECT_DIR=/builds/group/project"}
	for _, o := range regexp.MustCompile(`"(.*?)"`).FindAllStringSubmatch(part(t, `security_opt = (\[.*\])`), -1) {
		flags = append(flags, "--security-opt", o[1])
	}
	flags = append(flags, "--tmpfs", part(t, `\[runners.docker.tmpfs\]\n *"(.*?)"`)+":"+part(t, `\[runners.docker.tmpfs\]\n *".*?" = "(.*?)"`))
	for name, value := range job.Variables {
		flags = append(flags, "-e", name+"="+value)
	}
	said := container(t, image, options(flags), "set -e\n"+strings.Join(job.Script, "\n"))
	reported(t, dir, said)

	// What the page says of this strength.
	plan := container(t, image, options(flags), "hutch plan ci.hcl")
	for _, want := range []string{"(namespace): chosen", `memory = 512MiB \(asked\): sampled`} {
		if !regexp.MustCompile(want).MatchString(plan) && !strings.Contains(plan, want) {
			t.Errorf("%s is not in\n%s", want, plan)
		}
	}
}

// TestUnprivilegedJob runs the page's run file in a container as it is, with the flag that the page names for that.
func TestUnprivilegedJob(t *testing.T) {
	if confined.Landlock() < confined.MinLandlock {
		t.Skip("this kernel has no Landlock that is good enough")
	}
	image, dir := podmantest.Bubblewrap(t), project(t, 0o777)
	flag := part(t, "unprivileged container without options \\|.* or `(--backend .*?)` \\| `process`")
	reported(t, dir, container(t, image, []string{"--user=1000", "-v", dir + ":/job", "-w", "/job"},
		"hutch run "+flag+" ci.hcl --junit hutch.xml --outputs hutch-outputs"))
}

// TestJenkins runs the step of the page as the Docker plugin does: as the user of the agent, whose workspace it mounts.
func TestJenkins(t *testing.T) {
	image := podmantest.Bubblewrap(t)
	dir := project(t, 0o755)
	user := os.Getuid()
	if user == 0 {
		if user = 1000; os.Chown(dir, user, user) != nil {
			t.Fatal("the workspace has no other owner")
		}
	}
	flags := append([]string{"-u", fmt.Sprintf("%d:%d", user, user), "-w", dir, "-v", dir + ":" + dir, "-e", "JENKINS_URL=http://jenkins.example/"},
		strings.Fields(part(t, `args '(.*)'`))...)
	if os.Getuid() != 0 {
		flags = append(flags, "--userns=keep-id") // as with docker, the user is the same outside
	}
	reported(t, dir, container(t, image, options(flags), part(t, `sh '(.*)'`)))
}

// TestDockerLine runs the line of the page with podman in docker's place.
func TestDockerLine(t *testing.T) {
	image := podmantest.Bubblewrap(t)
	dir, bin := project(t, 0o755), t.TempDir()
	line := part(t, "(?s)## Docker\n\n```sh\n(.*?)```")
	words := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(line, "docker run"), "\\\n", " "))
	for i, w := range words {
		if w == "registry.example.com/hutch" {
			words[i] = image
		}
	}
	common := []string{"podman", "run", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "-v", e2e.Dir + ":/opt/hutch:ro",
		"-e", "PATH=/opt/hutch/bin:/usr/bin:/bin"}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.Join(slices.Concat(common, options(words)), " "))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+bin)
	said, err := cmd.CombinedOutput()
	result, _ := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil || !strings.Contains(string(result), `"ok": true`) {
		t.Errorf("%v\n%s\n%s", err, said, result)
	}
}

// TestAction runs the steps of action.yml as the runner of GitHub does, on a copy of this project.
func TestAction(t *testing.T) {
	for _, tool := range []string{"bwrap", "make", "git"} {
		e2e.Require(t, tool)
	}
	var action struct {
		Inputs map[string]struct{ Default string }
		Runs   struct {
			Steps []struct {
				Name, ID, Uses, If, Run, Shell string
				Env                            map[string]string
			}
		}
	}
	decode(t, "action.yml", &action)
	temp, dir, source := t.TempDir(), project(t, 0o755), filepath.Join(t.TempDir(), "action")
	clone := exec.CommandContext(t.Context(), "bash", "-c", `git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$1"`, "bash", source)
	clone.Dir = top
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := clone.CombinedOutput(); err != nil {
		t.Skipf("this is no checkout: %v\n%s", err, out)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Uses string
				With map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(part(t, "(?s)```yaml\n(# .github/.*?)```")), &workflow); err != nil {
		t.Fatal(err)
	}
	for _, step := range workflow.Jobs["test"].Steps {
		for name := range step.With {
			if _, known := action.Inputs[name]; !known && strings.HasPrefix(step.Uses, "hutch-run/hutch@") {
				t.Errorf("the page sets %s, which is no input", name)
			}
		}
	}
	file := func(name string) string { return filepath.Join(temp, name) }
	var said strings.Builder
	steps := func(inputs map[string]string) (failed string) {
		for _, step := range action.Runs.Steps {
			if step.Run == "" || inputs != nil && step.ID != "run" {
				continue
			}
			path, _ := os.ReadFile(file("path"))
			cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.Run)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GITHUB_ACTIONS=true", "GITHUB_ACTION_PATH="+source, "GITHUB_ACTION_REF=v0", "GITHUB_OUTPUT="+file("output"), "GITHUB_PATH="+file("path"),
				"GITHUB_STEP_SUMMARY="+file("summary.md"), "RUNNER_TEMP="+temp, "RUNNER_OS=Linux", "RUNNER_ARCH=X64", "HUTCH_HOME="+file("home"),
				"PATH="+strings.TrimSpace(string(path))+":"+os.Getenv("PATH"))
			for name, value := range step.Env {
				input := strings.TrimSuffix(strings.TrimPrefix(value, "${{ inputs."), " }}")
				text, ok := inputs[input]
				if in, known := action.Inputs[input]; !ok && known {
					text = in.Default
				} else if !known {
					t.Fatalf("%s of step %s is no input: %s", name, step.Name, value)
				}
				cmd.Env = append(cmd.Env, name+"="+text)
			}
			out, err := cmd.CombinedOutput()
			if said.Write(out); err != nil {
				return fmt.Sprintf("%s: %v", step.Name, err)
			}
		}
		return ""
	}
	if failed := steps(nil); failed != "" {
		t.Fatalf("%s\n%s", failed, &said)
	}
	reported(t, dir, said.String())
	for name, want := range map[string]string{"output": `(?m)^key=hutch-Linux-X64-[0-9a-f]{16}\njunit=hutch.xml\noutputs=hutch-outputs$`, "summary.md": `\| test \| ok \|`} {
		if text, err := os.ReadFile(file(name)); err != nil || !regexp.MustCompile(want).Match(text) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "test.sh"), []byte("exit 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	failed := steps(map[string]string{"args": "ci.hcl\ntest\n--timeout\n1m\n", "retry": "1"})
	if failed != "Run: exit status 3" || !strings.Contains(said.String(), "\n::error title=hutch%3A test,file=ci.hcl,line=2,") || !strings.Contains(said.String(), "attempt 1 of 2 failed") {
		t.Errorf("a run that fails: %s\n%s", failed, &said)
	}
}

// TestPreCommit runs the hooks on files in order, and on one that is not.
func TestPreCommit(t *testing.T) {
	var hooks []struct{ ID, Entry, Files, Exclude string }
	decode(t, ".pre-commit-hooks.yaml", &hooks)
	dir := project(t, 0o755)
	if err := os.WriteFile(filepath.Join(dir, "bad.hcl"), []byte("run \"x\" {\n comand = 1\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, hook := range hooks {
		if !strings.Contains(page(t), "- id: "+hook.ID+"\n") || !regexp.MustCompile(hook.Files).MatchString("ci.hcl") || !regexp.MustCompile(hook.Exclude).MatchString(".hutch.lock.hcl") {
			t.Errorf("hook %+v", hook)
		}
		args := strings.Fields(hook.Entry)
		for file, ok := range map[string]bool{"ci.hcl": true, "bad.hcl": false} {
			cmd := exec.CommandContext(t.Context(), e2e.Hutch(), append(slices.Clone(args[1:]), file)...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "HUTCH_HOME="+t.TempDir())
			if out, err := cmd.CombinedOutput(); (err == nil) != ok {
				t.Errorf("%s %s: %v\n%s", hook.Entry, file, err, out)
			}
		}
	}
}
