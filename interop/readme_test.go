// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// block is a block of code in a document.
type block struct {
	line int // of its first line
	text string
}

// blocks returns what a document has in a language.
func blocks(t *testing.T, path, language string) []block {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	var found []block
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllSubmatchIndex(text, -1) {
		found = append(found, block{1 + bytes.Count(text[:m[2]], []byte("\n")), string(text[m[2]:m[3]])})
	}
	return found
}

// readme returns README's blocks of Go: the whole program, the line that moves
// it to Redis, the line that opens a store by its URL, and the fragments.
func readme(t *testing.T) (program, line, byURL string, fragments []string) {
	t.Helper()
	for _, b := range blocks(t, "../README.md", "go") {
		switch block := b.text; {
		case strings.HasPrefix(block, "package main") && program == "":
			program = block
		case strings.HasPrefix(block, "store := redisdriver.New(") && line == "":
			line = strings.TrimSuffix(block, "\n")
		case strings.HasPrefix(block, "locks, err := open.Client(") && byURL == "":
			byURL = strings.TrimSuffix(block, "\n")
		default:
			fragments = append(fragments, block)
		}
	}
	if program == "" || line == "" || byURL == "" || len(fragments) != 2 {
		t.Fatalf("README.md has the program %q, the lines %q and %q and %d fragments", program, line, byURL, len(fragments))
	}
	return program, line, byURL, fragments
}

// gotool runs a subcommand of go on a program.
func gotool(t *testing.T, verb, program string) string {
	t.Helper()
	return gotoolIn(t, ".", verb, map[string]string{"main.go": program})
}

// gotoolIn is gotool for a program of several files, with the modules that the one in dir has.
func gotoolIn(t *testing.T, dir, verb string, files map[string]string) string {
	t.Helper()
	args, temp := []string{verb}, t.TempDir()
	for name, text := range files {
		file := filepath.Join(temp, name)
		must(t, os.WriteFile(file, []byte(text), 0o600))
		args = append(args, file)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("go %s: %v\n%s", verb, err, out)
		for name, text := range files {
			if bytes.Contains(out, []byte(name)) {
				t.Log(text)
			}
		}
		t.FailNow()
	}
	return string(out)
}

// replace is strings.Replace of what is there exactly once.
func replace(t *testing.T, s, what, with string) string {
	t.Helper()
	if strings.Count(s, what) != 1 {
		t.Fatalf("README.md has %q %d times in\n%s", what, strings.Count(s, what), s)
	}
	return strings.Replace(s, what, with, 1)
}

// README's program runs as it stands, and holds its key.
func TestReadmeProgram(t *testing.T) {
	program, _, _, _ := readme(t)
	if pretty, err := format.Source([]byte(program)); err != nil || string(pretty) != program {
		t.Errorf("gofmt would change README's program: %v", err)
	}
	if out := gotool(t, "run", program); !strings.HasPrefix(out, "holding orders/42 with fence ") || strings.Count(out, "\n") != 1 {
		t.Errorf("README's program says %q", out)
	}
}

// The one line that README names moves its program to Redis.
func TestReadmeProgramOnRedis(t *testing.T) {
	program, line, _, _ := readme(t)
	server := testserver.Redis(t)
	program = replace(t, program, "store := memdriver.New()", replace(t, line, "localhost:6379", server.Addr()))
	program = replace(t, program, `"github.com/hasplock/hasp/memdriver"`,
		`"github.com/hasplock/hasp/redisdriver"`+"\n"+`"github.com/redis/go-redis/v9"`)
	if out := gotool(t, "run", program); !strings.HasPrefix(out, "holding orders/42 with fence ") || strings.Count(out, "\n") != 1 {
		t.Errorf("README's program on Redis says %q", out)
	}
}

// So does the line that opens a store by its URL.
func TestReadmeProgramByURL(t *testing.T) {
	program, _, line, _ := readme(t)
	server := testserver.Redis(t)
	line = replace(t, replace(t, line, "redis://localhost", "redis://"+server.Addr()), "ctx", "context.Background()")
	program = replace(t, program, "\tstore := memdriver.New()\n", "")
	program = replace(t, program, "locks, err := hasp.New(store, nil)", line)
	program = replace(t, program, `"github.com/hasplock/hasp/memdriver"`, `"github.com/hasplock/hasp/open"`)
	if out := gotool(t, "run", program); !strings.HasPrefix(out, "holding orders/42 with fence ") || strings.Count(out, "\n") != 1 {
		t.Errorf("README's program by a URL says %q", out)
	}
}

// The fragments compile, as the body of a function that has what they use.
func TestReadmeFragments(t *testing.T) {
	_, _, _, fragments := readme(t)
	for _, body := range fragments {
		end := "_ = lease\nreturn err\n"
		switch {
		case strings.Contains(body, "both, err"):
			end = "_ = both\n" + end
		case strings.Contains(body, "return errors.Join"):
			end = ""
		}
		gotool(t, "vet", `package main

import (
	"context"
	"errors"

	"github.com/hasplock/hasp"
)

type order struct{}

var _ = errors.Join

func save(ctx context.Context, o order, fence uint64) error { return ctx.Err() }

func schedule(ctx context.Context, fence uint64) error { return ctx.Err() }

func f(ctx context.Context, locks *hasp.Client, order order) error {
	`+body+end+`}

func main() { _, _, _ = f, save, schedule }
`)
	}
}
