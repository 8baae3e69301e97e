// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts of testdata/script run on each engine, those of a folder that is
// named after an engine on that one. What no engine can change is tried on SQLite.

func TestScriptsSQLite(t *testing.T) {
	t.Parallel()
	runScripts(t, []string{"testdata/script", "testdata/sqlite"}, func(work string) string {
		return "sqlite:" + filepath.Join(work, "locks.db")
	})
}

func TestScriptsRedis(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	runScripts(t, []string{"testdata/script", "testdata/redis"}, func(work string) string {
		return "redis://" + server.Addr() + "?prefix=" + filepath.Base(work) + ":" // a name space for each script
	})
}

// Only what differs from hasp's own layout: each script has a server of its own.
func TestScriptsRedisson(t *testing.T) {
	t.Parallel()
	runScripts(t, []string{"testdata/redisson"}, func(string) string { return "redis:" })
}

func TestScriptsEtcd(t *testing.T) {
	t.Parallel()
	server := testserver.Etcd(t)
	runScripts(t, []string{"testdata/script", "testdata/etcd"}, func(work string) string {
		return "etcd://" + server.Addr() + "?prefix=" + filepath.Base(work) + "/"
	})
}

func TestScriptsZooKeeper(t *testing.T) {
	t.Parallel()
	server := testserver.ZooKeeper(t)
	runScripts(t, []string{"testdata/script", "testdata/zk"}, func(work string) string {
		return "zk://" + server.Addr() + "/" + filepath.Base(work)
	})
}

func TestScriptsPostgres(t *testing.T) {
	t.Parallel()
	base := "postgres://postgres@" + testserver.Postgres(t).Addr() + "/postgres?sslmode=disable&connect_timeout=60" // it may take its time
	runScripts(t, []string{"testdata/script", "testdata/postgres"}, database(t, "pgx", base, "CREATE SCHEMA ", func(name string) string {
		return base + "&options=-csearch_path%3D" + name
	}))
}

func TestScriptsMariaDB(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	runScripts(t, []string{"testdata/script", "testdata/mysql"}, database(t, "mysql", "root@tcp("+server.Addr()+")/", "CREATE DATABASE ", func(name string) string {
		return "mysql://root@" + server.Addr() + "/" + name
	}))
}

// database returns the URLs of the scripts' stores, each with tables of its own.
func database(t *testing.T, driver, dsn, create string, url func(name string) string) func(work string) string {
	db, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return func(work string) string {
		name := strings.ReplaceAll(filepath.Base(work), "-", "_")
		if work == "." {
			return url("none") // for a condition
		}
		if _, err := db.Exec(create + name); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("hasp", "init", "--store", url(name)).CombinedOutput(); err != nil {
			t.Fatalf("hasp init: %v\n%s", err, out)
		}
		return url(name)
	}
}

func TestScriptsRedlock(t *testing.T) {
	t.Parallel()
	url := redlock(t, "?max-ttl=2h")
	runScripts(t, []string{"testdata/script"}, func(work string) string { return url + "&prefix=" + filepath.Base(work) + ":" })
	runScripts(t, []string{"testdata/redlock"}, func(string) string { return "redlock:" }) // each has servers of its own
}

// What the store's URL means, and the doctor: that the locks are the same, the suite of redisdriver shows.
func TestScriptsSentinel(t *testing.T) {
	t.Parallel()
	g := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: time.Minute})
	runScripts(t, []string{"testdata/sentinel"}, func(string) string {
		return "redis+sentinel://" + testserver.MasterName + "@" + strings.Join(g.Addrs(), ",")
	})
}

func TestScriptsCluster(t *testing.T) {
	t.Parallel()
	g := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: time.Minute})
	runScripts(t, []string{"testdata/cluster"}, func(string) string { return "redis+cluster://" + strings.Join(g.Addrs(), ",") })
}

// some scripts are enough for make test on any engine but SQLite.
var some = []string{"busy.txt", "break.txt"}

func runScripts(t *testing.T, dirs []string, url func(work string) string) {
	for _, dir := range dirs {
		var files []string
		if testing.Short() && dir == "testdata/script" && !strings.HasPrefix(url("."), "sqlite:") {
			for _, name := range some {
				files = append(files, filepath.Join(dir, name))
			}
			dir = ""
		}
		testscript.Run(t, testscript.Params{
			Dir:                 dir,
			Files:               files,
			RequireExplicitExec: true,
			RequireUniqueNames:  true,
			Condition:           func(name string) (bool, error) { return meets(url("."), name) },
			Setup: func(e *testscript.Env) error {
				e.Setenv("HASP_STORE", url(e.WorkDir))
				e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "state"))
				e.Setenv("GORACE", os.Getenv("GORACE"))
				e.Setenv("KEY512", strings.Repeat("x", 512))
				e.Setenv("LONG", strings.Repeat("x", 513))
				p := &processes{dir: e.WorkDir, named: map[string]*exec.Cmd{}}
				e.Values[processesKey{}] = p
				e.Values[serversKey{}] = &servers{t: t}
				e.Defer(p.end)
				return syscall.Mkfifo(filepath.Join(e.WorkDir, "never"), 0o600) // as in every sandbox
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"exits": exits, "start": start, "signal": sendSignal, "ends": ends, "await": await, "gone": gone, "fifo": fifo,
				"servers": startServers, "server": server,
			},
		})
	}
}

// meets says whether a condition of a script holds: a trait of the store, or the scheme of its URL.
func meets(url, name string) (bool, error) {
	trait, ok := map[string]func(driver.Traits) bool{
		"abandons": func(t driver.Traits) bool { return t.MarksAbandoned },
		"slots":    func(t driver.Traits) bool { return t.Slots },
	}[name]
	if !ok {
		return strings.HasPrefix(url, name+":"), nil
	}
	if url == "redlock:" { // each script has servers of its own
		url += "//a,b,c"
	}
	u, err := store.Parse(url)
	if err != nil {
		return false, err
	}
	s, err := u.Open()
	if err != nil {
		return false, err
	}
	return trait(s.Traits()), s.Close()
}

// limit bounds every wait for an event. It is for a machine under load; nothing
// takes so long.
const limit = 3 * time.Minute

type processesKey struct{}

// processes are what a script started in the background.
type processes struct {
	dir   string
	named map[string]*exec.Cmd
}

func (p *processes) end() {
	for _, cmd := range p.named {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

type serversKey struct{}

// servers are a script's own. They end with the test of all scripts.
type servers struct {
	t   *testing.T
	all []*testserver.Server
}

// servers N [ARGUMENT...]: starts redis-servers with these arguments; $S1, $S2 and
// so on are their addresses, $SERVERS those of all, for a URL.
func startServers(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	s := ts.Value(serversKey{}).(*servers)
	var addrs []string
	for range n {
		s.all = append(s.all, testserver.Redis(s.t, args[1:]...))
	}
	for i, server := range s.all {
		addrs = append(addrs, server.Addr())
		ts.Setenv(fmt.Sprintf("S%d", i+1), server.Addr())
	}
	ts.Setenv("SERVERS", strings.Join(addrs, ","))
}

// server kill|restart|stop|cont N...: of those that servers started.
func server(ts *testscript.TestScript, neg bool, args []string) {
	for _, arg := range args[1:] {
		n, err := strconv.Atoi(arg)
		ts.Check(err)
		s := ts.Value(serversKey{}).(*servers).all[n-1]
		switch args[0] {
		case "kill":
			s.Kill()
		case "restart":
			s.Restart()
		case "stop":
			s.Stop()
		case "cont":
			s.Cont()
		default:
			ts.Fatalf("usage: server kill|restart|stop|cont N...")
		}
	}
}

// exits CODE PROGRAM...: the program runs, and exits with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM...")
	}
	err := ts.Exec(args[1], args[2:]...)
	if got := exitOf(err); strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d (%v), want %s", got, err, args[0])
	}
}

func exitOf(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -2
}

// start NAME PROGRAM...: the program runs in the background. Its output is in
// NAME.out and NAME.err.
func start(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: start NAME PROGRAM...")
	}
	p := ts.Value(processesKey{}).(*processes)
	path := args[1]
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), string(os.PathListSeparator)) {
		if _, err := os.Stat(filepath.Join(dir, path)); err == nil {
			path = filepath.Join(dir, path)
			break
		}
	}
	cmd := &exec.Cmd{Path: path, Args: args[1:], Dir: ts.MkAbs(".")}
	for _, name := range []string{"PATH", "HOME", "HASP_STORE", "HASP_STORE_FILE", "HASP_AGENT", "XDG_STATE_HOME", "WORK", "GORACE"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	out, err := os.Create(ts.MkAbs(args[0] + ".out"))
	ts.Check(err)
	defer out.Close()
	errs, err := os.Create(ts.MkAbs(args[0] + ".err"))
	ts.Check(err)
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	ts.Check(cmd.Start())
	p.named[args[0]] = cmd
}

// signal NAME SIGNAL: INT, TERM, HUP, KILL, STOP, CONT, USR1, QUIT.
func sendSignal(ts *testscript.TestScript, _ bool, args []string) {
	sigs := map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP,
		"CONT": syscall.SIGCONT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "QUIT": syscall.SIGQUIT,
	}
	cmd := ts.Value(processesKey{}).(*processes).named[args[0]]
	ts.Check(cmd.Process.Signal(sigs[args[1]]))
}

// ends NAME CODE: the program of start ends with that code.
func ends(ts *testscript.TestScript, _ bool, args []string) {
	p := ts.Value(processesKey{}).(*processes)
	cmd := p.named[args[0]]
	delete(p.named, args[0])
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	if got := exitOf(err); strconv.Itoa(got) != args[1] {
		text, _ := os.ReadFile(ts.MkAbs(args[0] + ".err"))
		ts.Fatalf("%s ended with %d (%v), want %s; its messages:\n%s", args[0], got, err, args[1], text)
	}
}

// await FILE [PATTERN]: the file appears, and has the pattern in it.
func await(ts *testscript.TestScript, _ bool, args []string) {
	re := regexp.MustCompile("(?m)" + strings.Join(args[1:], " "))
	ts.Check(eventually(func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && re.Match(text)
	}))
}

// gone FILE: the process whose id is in the file ends.
func gone(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	ts.Check(eventually(func() bool { return !alive(pid) }))
}

// fifo NAME...: makes named pipes.
func fifo(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		ts.Check(syscall.Mkfifo(ts.MkAbs(name), 0o600))
	}
}

// alive says whether a process runs; one that waits to be reaped does not.
func alive(pid int) bool {
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		state := string(text[strings.LastIndexByte(string(text), ')')+1:])
		return !strings.HasPrefix(strings.TrimSpace(state), "Z")
	}
	_, proc := os.Stat("/proc/self")
	return proc != nil && syscall.Kill(pid, 0) == nil
}

var errNever = errors.New("it did not happen within " + limit.String())

// eventually polls until a condition is true.
func eventually(is func() bool) error {
	for end := time.Now().Add(limit); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return errNever
		}
	}
	return nil
}
