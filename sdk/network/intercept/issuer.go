package intercept

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// maxLeaves bounds the certificates that are kept: *.NAME stands for any number of names.
const maxLeaves = 1000

// issuer signs certificates with a sandbox's authority.
type issuer struct {
	ca    tls.Certificate
	key   *ecdsa.PrivateKey // of every leaf
	mu    sync.Mutex
	cache map[string]*tls.Certificate
}

func newIssuer(a *sdk.Authority) (*issuer, error) {
	ca, err := tls.X509KeyPair(a.Certificate, a.Key)
	if err != nil {
		return nil, err
	}
	if !ca.Leaf.IsCA {
		return nil, errors.New("its certificate is not one of an authority")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &issuer{ca: ca, key: key, cache: map[string]*tls.Certificate{}}, nil
}

// leaf returns a certificate for a canonical name.
func (i *issuer) leaf(name string) (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if c := i.cache[name]; c != nil {
		return c, nil
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{"hutch sandbox"}},
		DNSNames:     []string{name},
		NotBefore:    time.Now().Add(-time.Hour), // clocks in virtual machines lag
		NotAfter:     i.ca.Leaf.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.ca.Leaf, i.key.Public(), i.ca.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	if len(i.cache) >= maxLeaves {
		clear(i.cache)
	}
	c := &tls.Certificate{Certificate: [][]byte{der, i.ca.Certificate[0]}, PrivateKey: i.key}
	i.cache[name] = c
	return c, nil
}
