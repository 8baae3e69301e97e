// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/open"
)

// process is one of an example.
type process struct {
	*exec.Cmd
	said chan string // its lines that matter
}

// start runs a program in a folder that it shares with others, as its store of locks. matters is part of lines that say something to the test.
func start(t *testing.T, program, dir, matters string, args ...string) *process {
	t.Helper()
	p := &process{exec.CommandContext(t.Context(), program, args...), make(chan string, 100)}
	p.Dir = dir
	p.Env = append(os.Environ(), "HASP_STORE=sqlite:"+filepath.Join(dir, "locks.db"))
	out, in := io.Pipe()
	p.Stdout, p.Stderr = in, in
	must(t, p.Cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			t.Logf("%d: %s", p.Process.Pid, lines.Text())
			if _, what, ok := strings.Cut(lines.Text(), matters); ok {
				p.said <- what
			}
		}
	}()
	t.Cleanup(func() { p.kill(); in.Close(); <-read })
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// waits are the keys of the hosts that wait for them; the others ask again.
var waits = map[string]string{"goose": "migrations", "gocron": "report", "certmagic": "certmagic/issue_cert_hasp.example"}

// shows waits until the store of a folder says so of a key.
func shows(t *testing.T, dir, key string, so func(hasp.Info) bool) {
	t.Helper()
	locks, err := open.Client(t.Context(), "sqlite:"+filepath.Join(dir, "locks.db"), nil)
	must(t, err)
	defer locks.Close()
	for {
		info, err := locks.Operator().Inspect(t.Context(), key)
		if must(t, err); so(info) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// What one process of two is at work on, or takes, the other one goes on with when that is killed.
func TestKilled(t *testing.T) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./...")
	build.Stderr = os.Stderr
	must(t, build.Run())
	none := func(*testing.T) string { return "" }
	for name, database := range map[string]func(t *testing.T) string{
		"goose": none, "gocron": none, "certmagic": none,
		"river": func(t *testing.T) string {
			return "postgres://postgres@" + testserver.Postgres(t).Addr() + "/postgres?sslmode=disable"
		},
		"asynq": func(t *testing.T) string { return testserver.Redis(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, args := t.TempDir(), []string{"-work", "1h"}
			if at := database(t); at != "" {
				args = append(args, "-database", at)
			}
			first, second := start(t, filepath.Join(bin, name), dir, "at work", args...), start(t, filepath.Join(bin, name), dir, "at work", args...)
			var ran bool
			select {
			case _, ran = <-first.said:
			case _, ran = <-second.said:
				first, second = second, first
			}
			if !ran {
				t.Fatal("a process has ended")
			}
			if key := waits[name]; key != "" {
				shows(t, dir, key, func(i hasp.Info) bool { return len(i.Queue) == 1 })
			}
			select {
			case what := <-second.said:
				t.Fatalf("both are at work%s", what)
			default:
			}
			first.kill()
			if _, ran := <-second.said; !ran {
				t.Fatal("the other process has ended")
			}
		})
	}
	t.Run("tusd", func(t *testing.T) { t.Parallel(); upload(t, filepath.Join(bin, "tusd")) })
}

// upload uploads half to a server, which is killed then, and the rest to another one.
func upload(t *testing.T, program string) {
	const whole, offset = "0123456789", "Upload-Offset"
	dir := t.TempDir()
	serve := func() (*process, string) {
		p := start(t, program, dir, "uploads go to ", "-listen", "127.0.0.1:0")
		return p, <-p.said
	}
	first, at := serve()
	_, elsewhere := serve()
	ask := func(method, url string, body io.Reader, header ...string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, body)
		must(t, err)
		r.Header.Set("Tus-Resumable", "1.0.0")
		r.Header.Set("Content-Type", "application/offset+octet-stream")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			answer.Body.Close()
		}
		return answer, err
	}
	created, err := ask(http.MethodPost, at, nil, "Upload-Length", strconv.Itoa(len(whole)))
	must(t, err)
	id := path.Base(created.Header.Get("Location"))

	body, half := io.Pipe()
	ended := make(chan error)
	go func() { _, err := ask(http.MethodPatch, at+id, body, offset, "0"); ended <- err }()
	_, err = io.WriteString(half, whole[:5])
	must(t, err)
	shows(t, dir, "tusd/"+id, func(i hasp.Info) bool { return i.Held })
	first.kill()
	half.Close()
	if <-ended == nil {
		t.Error("an upload to a server that was killed has ended well")
	}

	found, err := ask(http.MethodHead, elsewhere+id, nil)
	must(t, err)
	n, err := strconv.Atoi(found.Header.Get(offset))
	must(t, err)
	done, err := ask(http.MethodPatch, elsewhere+id, strings.NewReader(whole[n:]), offset, strconv.Itoa(n))
	must(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "uploads", id))
	if must(t, err); string(got) != whole || done.StatusCode != http.StatusNoContent {
		t.Errorf("it has %q after %d bytes were found; %s", got, n, done.Status)
	}
}
