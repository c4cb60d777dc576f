package network

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// NewAuthority makes an authority that signs for the hosts of secrets, which are rules about names, and for nothing
// else: a client that trusts it does not trust it for other names. It is valid from an hour ago until its end.
func NewAuthority(hosts []string, end time.Time) (*sdk.Authority, error) {
	var names []string
	for _, text := range hosts {
		rule, err := ParseRule(text)
		if err != nil {
			return nil, err
		}
		if name := rule.Name(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{Organization: []string{"hutch"},
			CommonName: fmt.Sprintf("hutch sandbox %x", serial.Bytes()[:4])},
		NotBefore:                   time.Now().Add(-time.Hour), // clocks in virtual machines lag
		NotAfter:                    end,
		IsCA:                        true,
		BasicConstraintsValid:       true,
		MaxPathLenZero:              true,
		KeyUsage:                    x509.KeyUsageCertSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         names, // each with the names below it
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &sdk.Authority{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}
