// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Certmagic obtains a certificate once, however many servers need it, from an issuer that signs for itself.
//
//	go run ./certmagic
//
// Start it twice at once: the second one waits, and loads what the first one obtained. Kill the first one: the second one obtains it.
package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"log"
	"math/big"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/caddyserver/certmagic"
	certmagiclock "github.com/hasplock/hasp/adapters/certmagic"
	"github.com/hasplock/hasp/open"
)

var work = flag.Duration("work", 5*time.Second, "how long the issuer takes")

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	locks, err := open.Client(ctx, cmp.Or(os.Getenv("HASP_STORE"), "sqlite:examples.db"), nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil }})
	defer cache.Stop()
	config = certmagic.New(cache, certmagic.Config{
		Storage: certmagiclock.New(&certmagic.FileStorage{Path: "certificates"}, locks, nil),
		Issuers: []certmagic.Issuer{issuer{}},
	})
	if err := config.ManageSync(ctx, []string{"hasp.example"}); err != nil {
		return err
	}
	log.Print("the certificate is here")
	return nil
}

// issuer stands for an ACME one, which needs a name that the world can reach.
type issuer struct{}

func (issuer) IssuerKey() string { return "self" }

func (issuer) Issue(_ context.Context, r *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	log.Print("at work on a certificate")
	time.Sleep(*work)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	cert := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), DNSNames: r.DNSNames, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 3, 0)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, r.PublicKey, key)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}
