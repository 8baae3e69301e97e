// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package weights measures what each of hasp's modules adds to a program.
package weights

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/expect"
)

var must = expect.Need

// programs are the smallest that use a module.
var programs = []struct{ name, imports, store string }{
	{"memory (`memdriver`, in the root module)", `"github.com/hasplock/hasp/memdriver"`, `memdriver.New()`},
	{"Redis (`redisdriver`)", `"github.com/hasplock/hasp/redisdriver"; "github.com/redis/go-redis/v9"`, `redisdriver.New(redis.NewClient(&redis.Options{}), nil)`},
	{"etcd (`etcddriver`)", `"github.com/hasplock/hasp/etcddriver"; clientv3 "go.etcd.io/etcd/client/v3"`,
		`etcddriver.New(func() *clientv3.Client { c, _ := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}}); return c }(), nil)`},
	{"ZooKeeper (`zkdriver`)", `"github.com/hasplock/hasp/zkdriver"`, `zkdriver.New(zkdriver.Connect([]string{"localhost:2181"}, nil), nil)`},
	{"SQL (`sqldriver`, without a database driver)", `"database/sql"; "github.com/hasplock/hasp/sqldriver"`, `sqldriver.NewPostgres(new(sql.DB), nil)`},
	{"PostgreSQL (`sqldriver`, `pgxlisten` and pgx)",
		`"github.com/hasplock/hasp/sqldriver"; "github.com/hasplock/hasp/sqldriver/pgxlisten"; "github.com/jackc/pgx/v5"; "github.com/jackc/pgx/v5/stdlib"`,
		`sqldriver.NewPostgres(stdlib.OpenDB(pgx.ConnConfig{}), &sqldriver.PostgresOptions{Listener: pgxlisten.New(&pgx.ConnConfig{})})`},
	{"any of them by its URL (`open`)", `"context"; "github.com/hasplock/hasp/driver"; "github.com/hasplock/hasp/open"`,
		`func() driver.Driver { d, _ := open.Driver(context.Background(), "redis://localhost"); return d }()`},
}

// The table of docs/choosing.md says how many modules of others a program resolves, and how large it is, give or
// take a tenth, which another version of Go may change. With -v the test prints the rows.
func TestWeights(t *testing.T) {
	page, err := os.ReadFile("../../docs/choosing.md")
	must(t, err)
	top, err := filepath.Abs("../..")
	must(t, err)
	dir := t.TempDir() // outside of the checkout
	for _, p := range programs {
		modules, bytes := weigh(t, top, dir, p.imports, p.store)
		got := float64(bytes) / 1e6
		is := fmt.Sprintf("| %s | %d | %.1f MB |", p.name, modules, got)
		t.Log(is)
		row := ""
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(strings.TrimSpace(line), "| "+p.name+" |") {
				row = strings.TrimSpace(line)
			}
		}
		var said int
		var size float64
		if _, err := fmt.Sscanf(strings.TrimPrefix(row, "| "+p.name+" |"), " %d | %f MB |", &said, &size); err != nil {
			t.Errorf("docs/choosing.md has no row for %q: want %s", p.name, is)
			continue
		}
		if said != modules || got < size*0.9 || got > size*1.1 {
			t.Errorf("docs/choosing.md says %s, and it is %s", row, is)
		}
	}
}

// weigh builds a program.
func weigh(t *testing.T, top, dir, imports, store string) (modules int, size int64) {
	var mod strings.Builder
	mod.WriteString("module example.com/program\n\ngo 1.26.0\n\n")
	for _, m := range []string{"", "/redisdriver", "/etcddriver", "/zkdriver", "/sqldriver", "/sqldriver/pgxlisten", "/open"} {
		fmt.Fprintf(&mod, "replace github.com/hasplock/hasp%s => %s%s\n", m, top, m)
	}
	text := fmt.Sprintf("package main\n\nimport (\n\"github.com/hasplock/hasp\"\n%s\n)\n\nfunc main() { _, _ = hasp.New(%s, nil) }\n",
		strings.ReplaceAll(imports, "; ", "\n"), store)
	for name, content := range map[string]string{"go.mod": mod.String(), "main.go": text, "go.sum": ""} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	run(t, dir, "mod", "tidy")
	for line := range strings.Lines(run(t, dir, "list", "-m", "all")) {
		if !strings.HasPrefix(line, "github.com/hasplock/hasp") && !strings.HasPrefix(line, "example.com/") {
			modules++
		}
	}
	run(t, dir, "build", "-trimpath", "-ldflags=-s -w", "-o", "program", ".")
	info, err := os.Stat(filepath.Join(dir, "program"))
	must(t, err)
	return modules, info.Size()
}

// run runs go outside of any workspace.
func run(t *testing.T, dir string, args ...string) string {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, complaint.Bytes())
	}
	return out.String()
}
