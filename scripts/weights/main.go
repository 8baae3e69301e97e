// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command weights prints what each of hasp's modules adds to a program: how many modules of
// others it resolves, and how large its binary is. In the top folder:
//
//	go run ./scripts/weights
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

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

// weight is what a program weighs.
type weight struct {
	name    string
	modules int // of others
	bytes   int64
}

func (w weight) String() string {
	return fmt.Sprintf("| %s | %d | %.1f MB |", w.name, w.modules, float64(w.bytes)/1e6)
}

func main() {
	weights, err := measure(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "weights:", err)
		os.Exit(1)
	}
	for _, w := range weights {
		fmt.Println(w)
	}
}

// measure builds each program, outside of the checkout in the folder top.
func measure(top string) (weights []weight, err error) {
	top, err = filepath.Abs(top)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hasp-weights-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for _, p := range programs {
		w := weight{name: p.name}
		if w.modules, w.bytes, err = weigh(top, dir, p.imports, p.store); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		weights = append(weights, w)
	}
	return weights, nil
}

func weigh(top, dir, imports, store string) (modules int, size int64, err error) {
	var mod strings.Builder
	mod.WriteString("module example.com/program\n\ngo 1.26.0\n\n")
	for _, m := range []string{"", "/redisdriver", "/etcddriver", "/zkdriver", "/sqldriver", "/sqldriver/pgxlisten", "/open"} {
		fmt.Fprintf(&mod, "replace github.com/hasplock/hasp%s => %s%s\n", m, top, m)
	}
	text := fmt.Sprintf("package main\n\nimport (\n\"github.com/hasplock/hasp\"\n%s\n)\n\nfunc main() { _, _ = hasp.New(%s, nil) }\n",
		strings.ReplaceAll(imports, "; ", "\n"), store)
	for name, content := range map[string]string{"go.mod": mod.String(), "main.go": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return 0, 0, err
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "go.sum")); err != nil {
		return 0, 0, err
	}
	if _, err := run(dir, "mod", "tidy"); err != nil {
		return 0, 0, err
	}
	list, err := run(dir, "list", "-m", "all")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(list) {
		if !strings.HasPrefix(line, "github.com/hasplock/hasp") && !strings.HasPrefix(line, "example.com/") {
			modules++
		}
	}
	if _, err := run(dir, "build", "-trimpath", "-ldflags=-s -w", "-o", "program", "."); err != nil {
		return 0, 0, err
	}
	info, err := os.Stat(filepath.Join(dir, "program"))
	if err != nil {
		return 0, 0, err
	}
	return modules, info.Size(), nil
}

// run runs go outside of any workspace.
func run(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, complaint.Bytes())
	}
	return out.String(), nil
}
