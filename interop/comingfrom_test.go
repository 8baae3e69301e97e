// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-redsync/redsync/v4"
	rspool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const comingFrom = "../docs/coming-from.md"

// Its tables fit a screen.
func TestComingFromFitsAScreen(t *testing.T) {
	text, err := os.ReadFile(comingFrom)
	must(t, err)
	for i, line := range strings.Split(string(text), "\n") {
		if n := utf8.RuneCountInString(line); n > 150 {
			t.Errorf("%s:%d has %d columns, 150 are allowed", comingFrom, i+1, n)
		}
	}
}

// imports are the packages of the page's blocks, by the name that these use.
var imports = map[string]string{
	"context": "context", "errors": "errors", "time": "time",
	"hasp": "github.com/hasplock/hasp", "driver": "github.com/hasplock/hasp/driver", "voting": "github.com/hasplock/hasp/driver/voting", "quorum": "github.com/hasplock/hasp/quorum",
	"redisdriver": "github.com/hasplock/hasp/redisdriver", "redisson": "github.com/hasplock/hasp/redisdriver/redisson",
	"zkdriver":  "github.com/hasplock/hasp/zkdriver",
	"redsync":   "github.com/go-redsync/redsync/v4",
	"goredis":   "github.com/go-redsync/redsync/v4/redis/goredis/v9",
	"redislock": "github.com/bsm/redislock",
	"rueidis":   "github.com/redis/rueidis", "rueidislock": "github.com/redis/rueidis/rueidislock",
	"concurrency": "go.etcd.io/etcd/client/v3/concurrency",
}

// common is what the blocks use and do not declare; the rest depends on the module.
const common = `package main

import (
	"context"
	%s

	"github.com/hasplock/hasp"
)

var (
	ctx        context.Context
	locks, old *hasp.Client
	order      struct{}
	%s
)

func save(context.Context, struct{}) error { return nil }
func report(context.Context) error         { return nil }

func main() {}
`

// The page's blocks of Go compile, those of the other libraries, too.
func TestComingFromGo(t *testing.T) {
	const etcd = "../etcddriver" // this module does without etcd's client
	modules := map[string]map[string]string{
		".":  {"common.go": fmt.Sprintf(common, `"github.com/redis/go-redis/v9"`, "rdb *redis.Client; servers []*redis.Client")},
		etcd: {"common.go": fmt.Sprintf(common, `clientv3 "go.etcd.io/etcd/client/v3"`, "client *clientv3.Client")},
	}
	n := 0
	for _, b := range blocks(t, comingFrom, "go") {
		if pretty, err := format.Source([]byte(b.text)); err != nil || string(pretty) != b.text {
			t.Errorf("%s:%d: gofmt would change it: %v", comingFrom, b.line, err)
		}
		body, used := inFunc(t, b)
		module := "."
		if used["concurrency"] {
			module = etcd
		}
		var lines strings.Builder
		for name := range used {
			fmt.Fprintf(&lines, "import %s %q\n", name, imports[name])
		}
		name := fmt.Sprintf("line%d", b.line)
		modules[module][name+".go"] = "package main\n\n" + lines.String() + "\nvar _ = " + name + "\n\nfunc " + name + "() error {\n" + body + "}\n"
		n++
	}
	if n < 12 {
		t.Errorf("%s has only %d blocks of Go", comingFrom, n)
	}
	for module, files := range modules {
		t.Run(filepath.Base(module), func(t *testing.T) { gotoolIn(t, module, "vet", files) })
	}
}

// inFunc completes a block to the body of a function that returns an error, and says which packages it uses.
func inFunc(t *testing.T, b block) (body string, used map[string]bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", "package main\nfunc f() error {\n"+b.text+"}\n", 0)
	if err != nil {
		t.Fatalf("%s:%d: %v", comingFrom, b.line, err)
	}
	used, body = map[string]bool{}, b.text
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && imports[x.Name] != "" {
				used[x.Name] = true
			}
		}
		return true
	})
	statements := file.Decls[0].(*ast.FuncDecl).Body.List
	if _, ok := statements[len(statements)-1].(*ast.ReturnStmt); ok {
		return body, used
	}
	for _, s := range statements { // a block that only shows a call
		if s, ok := s.(*ast.AssignStmt); ok && s.Tok == token.DEFINE {
			for _, x := range s.Lhs {
				body += "_ = " + x.(*ast.Ident).Name + "\n"
			}
		}
	}
	return body + "return nil\n", used
}

var (
	inlineCommand = regexp.MustCompile("`[^`\n]*\\bhasp [^`\n]+`")
	storeURL      = regexp.MustCompile("(?:--store |HASP_STORE=)'?([a-z+]+)://([^/?'`\\s]+)([^'`\\s]*)")
)

// The page's commands have the flags that it names, and its stores are named as hasp takes them.
func TestComingFromCommands(t *testing.T) {
	command := filepath.Join(t.TempDir(), "hasp")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", command, ".")
	build.Dir = "../cmd/hasp"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(comingFrom)
	must(t, err)
	var lines []string
	for _, b := range blocks(t, comingFrom, "sh") {
		lines = append(lines, strings.Split(b.text, "\n")...)
	}
	for _, span := range inlineCommand.FindAllString(string(text), -1) {
		lines = append(lines, strings.Trim(span, "`"))
	}
	n := 0
	for _, line := range lines {
		_, line, ok := strings.Cut(" "+line, " hasp ")
		if !ok {
			continue
		}
		n++
		line, _, _ = strings.Cut(line, " -- ")
		words := strings.Fields(strings.ReplaceAll(line, "'", ""))
		args := append([]string{words[0], "--help"}, words[1:]...)
		if out, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput(); err != nil {
			t.Errorf("%s has the command hasp %s: %v\n%s", comingFrom, line, err, out)
		}
	}
	if n < 20 {
		t.Errorf("%s has only %d commands", comingFrom, n)
	}
	urls := storeURL.FindAllStringSubmatch(string(text), -1)
	if len(urls) < 5 {
		t.Errorf("%s has only %d stores", comingFrom, len(urls))
	}
	for _, m := range urls {
		hosts := strings.Split(m[2], ",")
		for i := range hosts { // nobody is there
			hosts[i] = fmt.Sprintf("127.0.0.1:%d", i+1)
		}
		url := m[1] + "://" + strings.Join(hosts, ",") + m[3]
		t.Run(m[0], func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), command, "ls", "--store", url).CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 69 {
				t.Errorf("hasp ls --store %s: %v, want that it cannot be reached\n%s", url, err, out)
			}
		})
	}
}

// Rule: with all keys of a name hasp and rueidislock exclude each other, also when that needs a majority of three.
func TestRueidislockOfThreeKeys(t *testing.T) {
	s := testserver.Redis(t)
	locks := newLocks(t, s, layout{options: redisdriver.Options{NoPrefix: true}}, nil)
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr()}},
		TryNextAfter: soon, // by default it gives an answer 20 ms, and a busy machine has other things to do
	})
	must(t, err)
	defer locker.Close()
	all := hasp.Locks{locks.Mutex("rueidislock:0:k", nil), locks.Mutex("rueidislock:1:k", nil), locks.Mutex("rueidislock:2:k", nil)}

	ours, err := all.Lock(t.Context())
	must(t, err)
	if _, unlock, err := locker.TryWithContext(t.Context(), "k"); !errors.Is(err, rueidislock.ErrNotLocked) {
		unlock()
		t.Errorf("rueidislock beside us: %v", err)
	}
	got := make(chan context.CancelFunc, 1)
	go func() {
		_, unlock, err := locker.WithContext(t.Context(), "k")
		if err != nil {
			t.Error(err)
		}
		got <- unlock
	}()
	if err := ours.Release(); err != nil {
		t.Error(err)
	}
	unlock := await(t, "lock of rueidislock", got)
	if _, err := all.TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
		t.Errorf("we beside rueidislock: %v", err)
	}
	unlock()
	if ours, err = all.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ours.Release(); err != nil {
		t.Error(err)
	}
}

// Rule: over the same servers a majority of ours and one of redsync's exclude each other.
func TestRedsyncOverAQuorum(t *testing.T) {
	var nodes []voting.Node
	var pools []rspool.Pool
	for range 3 {
		s := testserver.Redis(t)
		nodes = append(nodes, redisdriver.NewNode(dial(t, s), 30*time.Second, &redisdriver.Options{NoPrefix: true}))
		pools = append(pools, goredis.NewPool(dial(t, s)))
	}
	locks, err := hasp.New(quorum.New(nodes, nil), nil)
	must(t, err)
	defer locks.Close()
	must(t, locks.Operator().Admit(t.Context()))
	// By default it gives a request 5 % of the expiry, which a busy machine needs for itself.
	theirs := redsync.New(pools...).NewMutex("k", redsync.WithExpiry(time.Minute), redsync.WithTimeoutFactor(1))

	lease, err := locks.Mutex("k", nil).Lock(t.Context())
	must(t, err)
	taken := (*redsync.ErrTaken)(nil)
	if err := theirs.TryLockContext(t.Context()); !errors.As(err, &taken) {
		t.Errorf("redsync beside us: %v", err)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	must(t, theirs.LockContext(t.Context()))
	if _, err := locks.Mutex("k", nil).TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
		t.Errorf("we beside redsync: %v", err)
	}
	if ok, err := theirs.UnlockContext(t.Context()); !ok || err != nil {
		t.Errorf("the unlock of redsync: %v, %v", ok, err)
	}
}
