package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/backendtest"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // as main does
	os.Exit(m.Run())
}

// needCluster gives the image for tests on a real cluster, which make test-kubernetes has. Others skip.
func needCluster(t *testing.T) string {
	t.Helper()
	image := os.Getenv(imageVariable)
	if os.Getenv("HUTCH_TEST_KUBERNETES") != "1" {
		t.Skip("needs a cluster: make test-kubernetes")
	}
	if image == "" || os.Getenv(testAgentVariable) == "" {
		t.Fatalf("%s or %s is not set", imageVariable, testAgentVariable)
	}
	return image
}

// TestConformance runs the suite that every backend has to pass.
func TestConformance(t *testing.T) {
	suite := backendtest.Suite{
		New:    func() sdk.Backend { return newBackend() },
		Config: map[string]any{"image": needCluster(t), "pull": "never"},
		BadConfigs: []backendtest.BadConfig{
			{Name: "an image that is an option", Config: map[string]any{"image": "--privileged"}, Path: "image"},
			{Name: "an unknown pull policy", Config: map[string]any{"pull": "sometimes"}, Path: "pull"},
			{Name: "root", Config: map[string]any{"user": 0}, Path: "user"},
			{Name: "a namespace that leads elsewhere", Config: map[string]any{"namespace": "../kube-system"}, Path: "namespace"},
			{Name: "a label of hutch", Config: map[string]any{"labels": map[string]any{"run.hutch.network": "full"}}, Path: `labels["run.hutch.network"]`},
			{Name: "a tiny storage", Config: map[string]any{"storage": "1MiB"}, Path: "storage"},
			{Name: "a life without end", Config: map[string]any{"lifetime": "9999h"}, Path: "lifetime"},
		},
	}
	if few := os.Getenv("HUTCH_TEST_CHECKS"); few != "" { // to look at a few while working on them
		suite.Only = regexp.MustCompile(few)
	}
	backendtest.Run(t, suite)
}

// admin runs kubectl as the cluster's administrator, or another command of test/kubernetes/cluster.
func admin(t *testing.T, in string, args ...string) {
	t.Helper()
	cmd := exec.Command(os.Getenv("HUTCH_TEST_KUBERNETES_CLUSTER"), args...)
	cmd.Stdin = strings.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// created makes a sandbox, and removes it with the test.
func created(t *testing.T, spec sdk.Spec) (sdk.Sandbox, error) {
	t.Helper()
	b := newBackend()
	req := &sdk.CreateRequest{Spec: spec, ID: "test-" + strings.ToLower(rand.Text()), Owner: t.Name(), StateDir: t.TempDir(),
		Allocated: func(sdk.Handle) error { return nil }, Progress: func(string, int64, int64) {}}
	s, err := b.Create(t.Context(), req)
	if err == nil {
		t.Cleanup(func() {
			h, err := s.(*sandbox).handle()
			if err == nil {
				err = b.Destroy(context.Background(), h)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	return s, err
}

// config is a block's.
func config(t *testing.T, change func(*Config)) *Config {
	image := needCluster(t)
	c := *sdk.ConfigOf[Config](&sdk.Spec{})
	c.Image, c.Pull = image, "never"
	if change != nil {
		change(&c)
	}
	return &c
}

// run runs a shell's script in a sandbox, without streams.
func run(t *testing.T, s sdk.Sandbox, script string) *sdk.Exit {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	exit, err := s.Exec(t.Context(), &sdk.Command{Argv: []string{"sh", "-c", script}, Stdin: null, Stdout: null, Stderr: null})
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

// TestNetworkIsClosedOrRefused stops what enforces policies, and starts it again.
func TestNetworkIsClosedOrRefused(t *testing.T) {
	cfg := config(t, nil)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // no witness of another test
	admin(t, "", "policy", "off")
	_, err := created(t, sdk.Spec{Config: cfg})
	admin(t, "", "policy", "on")
	if err == nil || !strings.Contains(err.Error(), "does not enforce NetworkPolicy") {
		t.Fatalf("without an engine: %v", err)
	}
	s, err := created(t, sdk.Spec{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	address, port, _ := strings.Cut(s.(*sandbox).cluster.address(), ":")
	if e := run(t, s, "nc -w 2 "+address+" "+port+" </dev/null"); e.Code == 0 {
		t.Errorf("the API server was reached: %+v", e)
	}
}

// TestFullNetworkIsPublic reaches no private address.
func TestFullNetworkIsPublic(t *testing.T) {
	s, err := created(t, sdk.Spec{Config: config(t, nil), Network: sdk.NetworkFull})
	if err != nil {
		t.Fatal(err)
	}
	address, port, _ := strings.Cut(s.(*sandbox).cluster.address(), ":")
	// A new pod's network is open for a moment: this backend does not probe a full one.
	if e := run(t, s, "for i in 1 2 3 4 5 6 7 8 9 10; do nc -w 1 "+address+" "+port+" </dev/null || exit 7; sleep 1; done"); e.Code != 7 {
		t.Errorf("the API server was reached: %+v", e)
	}
}

// TestPodEndsWithoutHutch leaves a pod alone.
func TestPodEndsWithoutHutch(t *testing.T) {
	cfg := config(t, nil)
	c, err := openCluster(place{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{cluster: c, pod: newWitnessName()}
	t.Cleanup(func() { _ = s.close(context.Background()) })
	if err := s.startPod(t.Context(), podOptions{name: s.pod, cfg: cfg, network: networkNone, lease: 2 * time.Second}, quiet,
		func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	pod := s.look(t.Context(), time.Minute)
	if _, err := verdict(s.pod, pod); err == nil || !strings.Contains(err.Error(), "no hutch was connected") {
		t.Errorf("a pod that nobody came for: %v", err)
	}
}

// TestFaults has clusters that cannot make a sandbox, and ones that take it away.
func TestFaults(t *testing.T) {
	needCluster(t)
	refused := func(t *testing.T, cfg *Config, want string) {
		t.Helper()
		if _, err := created(t, sdk.Spec{Config: cfg, Network: sdk.NetworkFull}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	t.Run("an image that is missing", func(t *testing.T) {
		refused(t, config(t, func(c *Config) { c.Image = "hutch.test/none:1" }), "cannot get the image hutch.test/none:1")
	})
	t.Run("an agent image without the agent", func(t *testing.T) {
		refused(t, config(t, func(c *Config) { c.AgentImage = c.Image }), "stat /hutch-kubernetes-agent: no such file")
	})
	t.Run("an agent image", func(t *testing.T) {
		cfg, dir, input := config(t, func(c *Config) { c.AgentImage = "hutch.test/agent:1" }), t.TempDir(), t.TempDir()
		agent, err := os.ReadFile(os.Getenv(testAgentVariable))
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, agentProgram), agent, 0o755), os.Chmod(dir, 0o755),
			os.WriteFile(filepath.Join(input, "file"), []byte("text"), 0o644))
		if err != nil {
			t.Fatal(err)
		}
		admin(t, "", "image", cfg.AgentImage, dir)
		s, err := created(t, sdk.Spec{Config: cfg, Network: sdk.NetworkFull, Input: input})
		if err != nil {
			t.Fatal(err)
		}
		if e := run(t, s, `[ "$(cat `+s.Ready().Input+`/file)" = text ] && ! touch `+s.Ready().Input+`/file && ! touch /hutch/agent`); e.Code != 0 {
			t.Errorf("the input: %+v", e)
		}
	})
	t.Run("a cluster without room", func(t *testing.T) {
		refused(t, config(t, func(c *Config) {
			c.NodeSelector = map[string]string{"none": "such"}
			c.StartTimeout = 3 * time.Second
		}), "did not start within 3s: waiting for room in the cluster")
	})
	t.Run("a full quota", func(t *testing.T) {
		const quota = `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"tight","namespace":"hutch"},"spec":{"hard":{"requests.ephemeral-storage":"1"}}}`
		admin(t, quota, "kubectl", "apply", "-f", "-")
		t.Cleanup(func() { admin(t, quota, "kubectl", "delete", "-f", "-") })
		c, err := openCluster(place{})
		if err != nil {
			t.Fatal(err)
		}
		// The quota counts once its controller has seen it.
		admin(t, "", "kubectl", "-n", c.Namespace, "wait", "--for=jsonpath={.status.hard}", "resourcequota/tight", "--timeout=60s")
		refused(t, config(t, nil), "exceeded quota")
	})
	t.Run("eviction", func(t *testing.T) {
		s, err := created(t, sdk.Spec{Config: config(t, func(c *Config) { c.Storage = minStorage }), Network: sdk.NetworkFull})
		if err != nil {
			t.Fatal(err)
		}
		if e := run(t, s, "head -c 32M /dev/zero >big; sleep 600"); e.Cause != sdk.CauseDisk || !strings.Contains(e.Evidence, "Evicted") {
			t.Errorf("a pod that wrote too much: %+v", e)
		}
	})
	t.Run("a killed agent", func(t *testing.T) {
		s, err := created(t, sdk.Spec{Config: config(t, nil), Network: sdk.NetworkFull})
		if err != nil {
			t.Fatal(err)
		}
		if e := run(t, s, "kill -9 -1; sleep 600"); e.Cause != sdk.CauseSignaled || e.Code != 137 {
			t.Errorf("a command that killed all: %+v", e)
		}
		if e := run(t, s, "exit 3"); e.Code != 3 {
			t.Errorf("the next command: %+v", e)
		}
	})
	t.Run("user namespace", func(t *testing.T) {
		s, err := created(t, sdk.Spec{Config: config(t, func(c *Config) { c.UserNS = true }), Network: sdk.NetworkFull})
		if err != nil {
			t.Skipf("this node has none for pods: %v", err)
		}
		if e := run(t, s, `read -r in out n </proc/self/uid_map && [ "$in" = 0 ] && [ "$out" != 0 ]`); e.Code != 0 {
			t.Errorf("the pod's users are the node's: %+v", e)
		}
	})
}
