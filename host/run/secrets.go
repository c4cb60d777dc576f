package run

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/run/deps"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	rules "github.com/hutch-run/hutch/sdk/network"
)

// trustDir is where commands see the certificates that they have to trust.
const trustDir = "/opt/hutch/trust"

// authorityYears is how long a sandbox's authority is valid. A persistent sandbox may live for years, and nothing
// outside of the sandbox trusts the authority; the certificates that it signs are made for each command.
const authorityYears = 10

// wall is what a sandbox has of the secrets of its network, for as long as it exists. The private record of a
// persistent sandbox has it. It has no value of a secret.
type wall struct {
	Placeholders map[string]string `json:"placeholders"` // by the name of the secret
	Certificate  string            `json:"certificate"`  // PEM
	Key          string            `json:"key"`          // PEM
}

func newWall(secrets []network.Secret) (*wall, error) {
	w := &wall{Placeholders: map[string]string{}}
	var hosts []string
	for _, s := range secrets {
		w.Placeholders[s.Name] = "hutch-" + s.Name + "-" + rand.Text()
		hosts = append(hosts, s.Hosts...)
	}
	a, err := rules.NewAuthority(hosts, time.Now().AddDate(authorityYears, 0, 0))
	if err != nil {
		return nil, fmt.Errorf("make the sandbox's authority: %w", err)
	}
	w.Certificate, w.Key = string(a.Certificate), string(a.Key)
	return w, nil
}

// env is what commands get: the placeholders, and what leads the usual clients to the certificates.
func (w *wall) env() map[string]string {
	env := map[string]string{
		"NODE_EXTRA_CA_CERTS": trustDir + "/ca.crt",
		"WGETRC":              trustDir + "/wgetrc",
		"JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStore=" + trustDir +
			"/bundle.p12 -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=" + trustPassword,
	}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO",
		"CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT"} {
		env[name] = trustDir + "/bundle.crt"
	}
	for name, placeholder := range w.Placeholders {
		env[name] = placeholder
	}
	return env
}

// trustPassword is no secret: Java wants one.
const trustPassword = "changeit"

// write writes the certificates that commands have to trust into dir: those of this machine and the sandbox's own.
func (w *wall) write(dir string, environ []string) error {
	ca := []byte(w.Certificate)
	bundle := slices.Clone(ca)
	users, machines := deps.Bundles(environ)
	for _, name := range []string{users, machines} {
		if name == "" {
			continue
		}
		roots, err := readBundle(name)
		if err != nil {
			return err
		}
		bundle = append(append(bundle, '\n'), roots...)
	}
	var certs []pkcs12.TrustStoreEntry
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil { // systems trust some that Go cannot read
			// Java wants different names, and not ""
			certs = append(certs, pkcs12.TrustStoreEntry{Cert: c, FriendlyName: fmt.Sprint(len(certs))})
		}
	}
	java, err := pkcs12.Modern.EncodeTrustStoreEntries(certs, trustPassword)
	if err != nil {
		return fmt.Errorf("write certificates for Java: %w", err)
	}
	// What keeps others of this machine out is the directory above; the sandbox's user may be somebody else.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"ca.crt": ca, "bundle.crt": bundle, "bundle.p12": java,
		"wgetrc": []byte("ca_certificate = " + trustDir + "/bundle.crt\n"),
	} {
		if err := writeFile(filepath.Join(dir, name), 0o644, bytes.NewReader(data)); err != nil {
			return err
		}
	}
	return nil
}

func readBundle(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxBundle))
}

// checkSecrets finds secrets that do not fit the rest of the run, which flags may have changed.
func checkSecrets(d *runfile.Definition) (all diag.Diagnostics) {
	for _, s := range d.Network.Secrets {
		if path, summary, fix := d.Network.Misfit(s, d.Env); summary != "" {
			all = append(all, d.Diagnose(path, summary, "", fix))
		}
	}
	return all
}

// readSecrets reads the values of d's secrets as they are now, in their order. Without commands, the values of those
// that come from one are "": a plan runs nothing. Neither errors nor diagnostics hold a value.
func (r *Runner) readSecrets(ctx context.Context, d *runfile.Definition, commands bool) (values []string,
	bad diag.Diagnostics, err error) {
	for _, s := range d.Network.Secrets {
		if len(s.From.Command) > 0 && !commands {
			values = append(values, "")
			continue
		}
		value, err := s.From.Read(ctx, r.opt.Environ)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if err != nil {
			text, fix := splitFix(err)
			bad = append(bad, d.Diagnose(fmt.Sprintf("network.secret[%q]", s.Name), "secret "+s.Name+": "+text, "", fix))
		}
		values = append(values, value)
	}
	return values, bad, nil
}

// takeSecrets reads the values before anything is made for the run. The redactor knows them from then on.
func (j *job) takeSecrets(ctx context.Context) error {
	values, bad, err := j.r.readSecrets(ctx, j.d, true)
	j.values = values
	j.secrets.Add(values...)
	if err == nil && len(bad) > 0 {
		err = bad
	}
	return err
}

// secure makes the wall of a sandbox that is about to be made, and what its commands have to trust.
func (j *job) secure() error {
	if len(j.d.Network.Secrets) == 0 {
		return nil
	}
	w, err := newWall(j.d.Network.Secrets)
	if err != nil {
		return err
	}
	var dir string
	if j.box != nil {
		dir, err = j.box.TrustDir()
	} else {
		dir, err = j.private("trust")
	}
	if err == nil {
		err = w.write(dir, j.r.opt.Environ)
	}
	if err != nil {
		return fmt.Errorf("write the certificates that commands trust: %w", err)
	}
	j.wall, j.trust = w, []sdk.Mount{{Source: dir, Target: trustDir, ReadOnly: true}}
	return nil
}

// withSecrets gives a command the secrets of its sandbox: placeholders to it, values to the backend.
func (j *job) withSecrets(cmd *client.Command) {
	if j.wall == nil {
		return
	}
	for name, value := range j.wall.env() {
		if _, set := cmd.Env[name]; !set {
			cmd.Env[name] = value
		}
	}
	for i, s := range j.d.Network.Secrets {
		cmd.Secrets = append(cmd.Secrets, sdk.Secret{Name: s.Name, Placeholder: j.wall.Placeholders[s.Name],
			Value: j.values[i], Hosts: s.Hosts, Rules: s.Rules})
	}
	cmd.Budget = j.budget
	cmd.Authority = &sdk.Authority{Certificate: []byte(j.wall.Certificate), Key: []byte(j.wall.Key)}
}
