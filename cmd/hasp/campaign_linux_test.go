// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	"golang.org/x/sys/unix"
)

// The campaign: ends, kinds of commands and moments at random, and a second holder that waits for the same key. Each process beats:
// it appends a line to the round's ledger, where the first hasp writes its messages, too. The order of its lines is the order of
// what was done, also where a process was slow.

var (
	rounds = flag.Int("rounds", 24, "how many rounds TestCampaign has at random")
	seed   = flag.Uint64("seed", 0, "draws the rounds of TestCampaign again; 0: others each time")
)

// beating is a script: it starts what the round is about, and beats until its pipe has a line for it.
const beating = `
exec 9<>"$DIR/$1"
read -r id _ _ parent _ </proc/self/stat
worker="bash $DIR/beat never worker"
case $2 in
group) setsid $worker & ;;
daemon) (setsid $worker &) ;;
setuid) $ROOTLY --reuid=0 --regid=0 --clear-groups $worker & ;;
namespace) unshare -pf $worker & ;;
stopped) $worker stops & ;;
many) xargs -0 -n1 -P2 bash $DIR/beat never job </dev/zero & ;;
job) id=$parent ;;
esac
for ((n = 0; ; n++)); do
	read -r now _ </proc/uptime
	echo "beat ${2/job/worker} $id ${HASP_FENCE:-0} $now $parent"
	test "$3" != stops || test $n != 0 || kill -STOP $id
	read -rt 0.03 -u 9 && break
	test $2 = job && break
	test $2$n = second9 && break
done
exit 0`

// What may become of a process when the next holder begins, from the strictest on.
const (
	mayNot   = iota // be there
	mayNamed        // be there if it was named before
	maySoon         // be there until the first hasp has ended: the key was taken away
	mayThere        // be there unsaid
)

// What a command is, or starts; and how it ends.
var (
	whats   = []string{"plain", "group", "daemon", "setuid", "namespace", "stopped", "many"}
	endings = []string{"exits", "TERM", "INT", "HUP", "group", "kill", "loss", "break", "max-hold", "asleep"}
)

// may says what docs/command.md allows to a process at an end.
func may(sub, end, kind, who string) int {
	worker, script := who == "worker", sub == "acquire"
	switch end {
	case "exits":
		if worker && script {
			return mayThere
		} else if worker {
			return mayNamed
		}
	case "TERM", "HUP", "INT", "group":
		if worker && script {
			return mayThere
		}
		ignores := end == "INT" && (kind == "many" || kind == "stopped") // what runs in the background of a script
		if worker && (kind == "setuid" && end != "group" || kind == "namespace" || ignores) {
			return mayNamed
		}
	case "kill":
		if worker || script {
			return mayThere
		}
	case "loss", "max-hold":
		if worker && kind == "setuid" {
			return mayNamed
		} else if worker && script && kind == "daemon" {
			return mayThere
		}
	case "break", "asleep":
		if worker && script && kind == "daemon" {
			return mayThere
		}
		return maySoon
	}
	return mayNot
}

// round is one of them.
type round struct {
	*sandbox
	sub, engine, kind, end, moment string
	random                         *rand.Rand
	exe                            string
	proxy                          *faultproxy.Proxy
	ledger                         *os.File
	first, second                  *proc
	done                           chan struct{} // closed when the first hasp, or the script, has ended
}

func TestCampaign(t *testing.T) {
	t.Parallel()
	_, exe, _ := onFile(t)
	setpriv, err := exec.LookPath("setpriv")
	must(t, err)
	must(t, exec.Command("install", "-m", "4755", setpriv, filepath.Join(filepath.Dir(exe), "rootly")).Run())
	addr := testserver.Redis(t).Addr()
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	sum := &tally{all: map[[2]string]counts{}}
	t.Cleanup(func() { t.Logf("seed %d, %d rounds\n%s", from, *rounds, sum) })
	cells := 2 * len(endings) * (len(whats) - 1) // without many
	for i := range cells + *rounds {
		r := &round{random: rand.New(rand.NewPCG(from, uint64(i-cells))), exe: exe}
		r.draw(i, cells)
		t.Run(fmt.Sprint(i, " ", r.sub, " ", r.end, " ", r.kind), func(t *testing.T) {
			t.Parallel()
			r.sandbox = newSandbox(t, "redis://"+addr)
			stalled := stall.Watch(t)
			t.Cleanup(func() {
				if t.Failed() {
					text, _ := os.ReadFile(r.ledger.Name())
					t.Logf("-seed %d: %s of a %s command on %s, %s at %s; this test stood still for %v:\n%s\nsecond:\n%s",
						from, r.sub, r.kind, r.engine, r.end, r.moment, stalled(), text, r.second.err.String())
				}
			})
			r.play()
			if i < cells && (r.end == "exits" || r.end == "kill") && slices.Contains(whats[1:5], r.kind) {
				r.until("what is left alone", func(text string) bool {
					_, beside, _ := strings.Cut(text, "beat second")
					return strings.Contains(beside, "beat worker") || strings.Contains(text, `"lost"`) // by a machine that stood still
				})
			}
			c := r.judge()
			c.rounds = 1
			sum.add(r.end, r.kind, c)
		})
	}
}

func (r *round) pick(words ...string) string { return words[r.random.IntN(len(words))] }

// pause waits for a random time: the moment of the fault, and not a wait for something.
func (r *round) pause(most time.Duration) { time.Sleep(time.Duration(r.random.Int64N(int64(most)))) }

// draw makes the first rounds one of each end and each kind, while run or acquire holds the key, and the others at random.
func (r *round) draw(i, cells int) {
	r.sub = r.pick("run", "acquire", "elect")
	r.kind = r.pick(whats...)
	r.end = r.pick(endings...)
	r.engine = r.pick("sqlite", "redis")
	r.moment = r.pick("start", "hold", "end")
	if i < cells {
		r.sub, r.moment = []string{"run", "acquire"}[i%2], "hold"
		r.end, r.kind = endings[i/2%len(endings)], whats[i/2/len(endings)]
	}
	if r.end == "loss" {
		r.engine = "redis"
	}
}

func (r *round) play() {
	t := r.t
	opened(t, r.dir, 0o777)
	r.fifo("gate")
	for _, name := range []string{"gate", "never"} {
		must(t, os.Chmod(filepath.Join(r.dir, name), 0o666))
	}
	must(t, os.WriteFile(filepath.Join(r.dir, "beat"), []byte(beating), 0o644))
	var err error
	r.ledger, err = os.OpenFile(filepath.Join(r.dir, "ledger"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o666)
	must(t, err)
	t.Cleanup(func() { _ = r.ledger.Close() })
	t.Cleanup(r.killAll)
	key, store := t.Name(), "sqlite:"+filepath.Join(r.dir, "locks.db")
	if r.engine == "redis" {
		r.proxy = faultproxy.New(t, strings.TrimPrefix(r.store, "redis://"))
		store = "redis://" + r.proxy.Addr()
	} else {
		r.store = store
	}
	flags := []string{"-v", "-o", "json", "--ttl", "2s", "--grace", "700ms"}
	if r.end == "max-hold" {
		flags = append(flags, "--max-hold", "1500ms")
	}
	args := append(append([]string{r.sub}, flags...), key)
	if r.sub == "acquire" {
		args = append([]string{"bash", "-c", `"$HASP" "$@" || exit; set -- gate ` + r.kind + beating, "bash"}, args...)
	} else {
		args = append(args, "--", "bash", filepath.Join(r.dir, "beat"), "gate", r.kind)
	}
	r.first = r.start(store, args, r.ledger)
	r.done = make(chan struct{})
	go func() { _ = r.first.cmd.Wait(); close(r.done) }()
	t.Cleanup(func() { r.killAll(); <-r.done })
	struck := make(chan struct{})
	go func() { defer close(struck); r.strike(key) }()
	r.until("acquired, or its end", func(text string) bool {
		return strings.Contains(text, `"acquired"`) || closed(r.done) || closed(struck)
	})
	r.second = r.start(r.store, []string{"run", "--ttl", "2s", key, "--", "bash", filepath.Join(r.dir, "beat"), "never", "second"}, nil)
	<-struck
	r.finish()
}

// start starts a hasp or a shell, whose command beats into the ledger.
func (r *round) start(store string, words []string, stderr *os.File) *proc {
	return r.haspWith(func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = r.exe, append([]string{"hasp"}, words...)
		if words[0] == "bash" {
			cmd.Path, cmd.Args = "/bin/bash", words
		}
		cmd.Env = append(cmd.Env, "DIR="+r.dir, "HASP="+r.exe, "ROOTLY="+filepath.Join(filepath.Dir(r.exe), "rootly"), "HASP_STORE="+store, "FIRST="+strconv.FormatBool(stderr != nil))
		cmd.Stdout = r.ledger
		if stderr != nil {
			cmd.Stderr = stderr
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if r.kind == "setuid" {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: oneUser, Gid: oneUser}
		}
	})
}

// until waits until the ledger is so.
func (r *round) until(what string, is func(text string) bool) {
	if err := eventually(func() bool {
		text, _ := os.ReadFile(r.ledger.Name())
		return is(string(text))
	}); err != nil {
		var left []string
		for _, pid := range r.all() {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			left = append(left, fmt.Sprintf("%d %s %.200q", pid, state(pid), line))
		}
		r.t.Errorf("waiting for %s: %v; there are\n%s", what, err, strings.Join(left, "\n"))
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// strike is the end, at its moment.
func (r *round) strike(key string) {
	acquired := func(text string) bool { return strings.Contains(text, `"acquired"`) || closed(r.done) }
	begun := func(text string) bool {
		return strings.Contains(text, "beat "+r.kind) && (r.kind == "plain" || strings.Contains(text, "beat worker")) || closed(r.done)
	}
	switch r.moment {
	case "start":
		r.pause(300 * time.Millisecond)
	case "hold", "end":
		r.until("the first beats", begun)
		r.pause(300 * time.Millisecond)
	}
	if r.moment == "end" {
		r.toGate()
		r.pause(10 * time.Millisecond)
	}
	r.send()
	pid := r.first.cmd.Process.Pid
	switch r.end {
	case "kill":
		if r.sub == "acquire" {
			pid = r.keeps()
		}
		r.signal(pid, syscall.SIGKILL)
	case "loss":
		r.proxy.Refuse()
		r.proxy.CloseAll()
	case "break":
		r.until("its owner", acquired)
		text, _ := os.ReadFile(r.ledger.Name())
		if m := regexp.MustCompile(`"acquired".*?"owner":"(\w+)"`).FindSubmatch(text); m != nil {
			r.hasp("break", key, "--owner", string(m[1]), "--yes").ends(0, 75) // it may have ended
		}
	case "asleep":
		r.sleep(pid)
	}
}

// send tells the command, hasp or the script to end. It is done again and again: a shell that is about to start something may miss it.
func (r *round) send() {
	sig, ok := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "group": syscall.SIGTERM}[r.end]
	pid := r.first.cmd.Process.Pid
	switch {
	case r.end == "exits":
		r.toGate()
	case r.end == "group" && r.sub == "acquire":
		pid = -pid
	case r.end == "group":
		pid = -r.main()
	}
	if ok && r.has(max(pid, -pid)) {
		_ = syscall.Kill(pid, sig)
	}
}

// toGate tells the command to end by itself.
func (r *round) toGate() {
	f, err := os.OpenFile(filepath.Join(r.dir, "gate"), os.O_RDWR, 0) // never blocks
	must(r.t, err)
	_, _ = f.WriteString("\n")
	r.t.Cleanup(func() { _ = f.Close() })
}

// main is the command's number, as the ledger has it.
func (r *round) main() int {
	text, _ := os.ReadFile(r.ledger.Name())
	_, after, _ := strings.Cut(string(text), "beat "+r.kind+" ")
	number, _, _ := strings.Cut(after, " ")
	pid, _ := strconv.Atoi(number)
	return pid
}

// keeps is the keeper of the script's key, 0 when the script has ended.
func (r *round) keeps() (pid int) {
	r.until("its keeper", func(string) bool {
		names, _ := os.ReadDir(r.sockets())
		for _, name := range names {
			pid, _ = strconv.Atoi(name.Name()[strings.LastIndexByte(name.Name(), '-')+1:])
		}
		return pid > 0 || closed(r.done)
	})
	return pid
}

// sleep stops all until another has had the key, in whatever order they go on.
func (r *round) sleep(pid int) {
	holds := pid
	if r.engine == "sqlite" { // what is stopped while it makes the file blocks the others, too
		r.until("its grant", func(text string) bool { return strings.Contains(text, `"acquired"`) || closed(r.done) })
	}
	if r.sub == "acquire" {
		holds = r.keeps()
	}
	if holds == 0 {
		return
	}
	r.until("its stop outside of a transaction", func(string) bool {
		r.signal(holds, syscall.SIGSTOP)
		if runs(holds) || !r.busy() {
			return !runs(holds)
		}
		r.signal(holds, syscall.SIGCONT)
		return false
	})
	r.until("the stop of all", func(string) bool {
		all := slices.DeleteFunc(r.all(), func(pid int) bool { return !runs(pid) })
		for _, pid := range all {
			r.signal(pid, syscall.SIGSTOP)
		}
		return len(all) == 0
	})
}

// runs says whether a thread of a process has neither ended nor been stopped: it may be in a transaction.
func runs(pid int) bool {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return slices.ContainsFunc(tasks, func(task os.DirEntry) bool {
		id, _ := strconv.Atoi(task.Name())
		return !strings.Contains("TZ", state(id))
	})
}

// goOn continues everything, again and again: what is stopped right after that, by hasp as the command was, goes on with the next.
func (r *round) goOn() {
	all := r.all()
	r.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, pid := range all {
		if state(pid) == "T" {
			r.signal(pid, syscall.SIGCONT)
		}
	}
}

// all are the processes of the first holder, in whatever session, namespace and state.
func (r *round) all() (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		if pid, _ := strconv.Atoi(filepath.Base(name)); r.has(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (r *round) has(pid int) bool {
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return strings.Contains(string(env), "DIR="+r.dir+"\x00") && strings.Contains(string(env), "FIRST=true\x00")
}

// signal sends a signal to a process of the first holder, and to no later one with its number.
func (r *round) signal(pid int, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if r.has(pid) {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

func (r *round) killAll() {
	if err := eventually(func() bool {
		all := r.all()
		for _, pid := range all {
			r.signal(pid, syscall.SIGKILL)
		}
		return len(all) == 0
	}); err != nil {
		r.t.Errorf("something is left: %v", r.all())
	}
}

// finish lets the second holder work, what was stopped go on, and all end.
func (r *round) finish() {
	over := make(chan struct{})
	go func() { _ = r.second.cmd.Wait(); close(over) }()
	r.t.Cleanup(func() { _ = r.second.cmd.Process.Kill(); <-over })
	again := every(time.Second, r.send)
	goOn := every(100*time.Millisecond, r.goOn)
	r.until("the next holder", func(text string) bool {
		again()
		return strings.Contains(text, "beat second") || closed(over)
	})
	r.goOn()
	r.until("its end", func(string) bool { return closed(over) })
	if r.end == "break" || r.end == "asleep" {
		text, _ := os.ReadFile(r.ledger.Name())
		before, _, _ := strings.Cut(string(text), "beat second")
		if strings.Contains(before, "beat "+r.kind) {
			r.until("the end of the first holder", func(text string) bool {
				goOn()
				return strings.Contains(text, `"exit"`) || strings.Contains(text, `"again"`)
			})
		}
	}
	r.toGate()
	_ = r.first.cmd.Process.Signal(syscall.SIGTERM)
	if err := eventually(func() bool { goOn(); return closed(r.done) }); err != nil {
		r.t.Error("the first hasp, or its script, does not end")
	}
}

// every returns f, but for calls that follow too soon.
func every(pause time.Duration, f func()) func() {
	next := time.Now().Add(pause)
	return func() {
		if now := time.Now(); now.After(next) {
			next = now.Add(pause)
			f()
		}
	}
}

// judge counts the beats of a holder after the first beat of the next.
func (r *round) judge() (c counts) {
	text, err := os.ReadFile(r.ledger.Name())
	must(r.t, err)
	lines := strings.Split(string(text), "\n")
	ways := []string{r.end}
	if r.moment == "end" {
		ways = append(ways, "exits")
	}
	own, top, over := 0, 0, false
	said := ""  // by the first hasp, until now
	begun := "" // what it had said when the latest holder began
	for _, line := range lines {
		if strings.HasPrefix(line, "{") {
			var e struct {
				Event string
				Fence int
			}
			must(r.t, json.Unmarshal([]byte(line), &e))
			said += line
			switch e.Event {
			case "acquired":
				own, over = e.Fence, false
			case "lost":
				ways = append(ways, "loss")
			case "exit", "again":
				over = true
			}
			continue
		}
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "beat" {
			continue
		}
		fence := number(r.t, f[3])
		if fence == 0 {
			fence = own
		}
		if fence > top {
			top, begun = fence, said
		}
		if fence == top {
			continue
		}
		most := mayNot
		for _, end := range ways {
			most = max(most, may(r.sub, end, r.kind, f[1]))
		}
		named := regexp.MustCompile(`\(pid (` + f[2] + `|` + f[5] + `)[,)]`) // it, or what has started it since
		switch {
		case most == mayThere:
			c.unsaid++
		case most == mayNot, most == mayNamed && !named.MatchString(begun), most == maySoon && over && !named.MatchString(said):
			c.wrong++
			r.t.Errorf("a beat inside another's hold: %s", line)
		case most == maySoon && !over:
			c.soon++
		default:
			c.named++
		}
	}
	return c
}

// counts are of rounds, and of beats inside another's hold: of what was named before, until a hasp had learned that its key was taken away,
// unsaid as the page says, and of all others.
type counts struct{ rounds, named, soon, unsaid, wrong int }

// tally adds the rounds up, by their end and the kind of their command.
type tally struct {
	mu  sync.Mutex
	all map[[2]string]counts
}

func (s *tally) add(end, kind string, c counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.all[[2]string{end, kind}]
	s.all[[2]string{end, kind}] = counts{of.rounds + c.rounds, of.named + c.named, of.soon + c.soon, of.unsaid + c.unsaid, of.wrong + c.wrong}
}

// String is the table of docs/results/campaigns.md: in each cell the rounds, and the beats inside another's hold.
func (s *tally) String() string {
	text := "| end | " + strings.Join(whats, " | ") + " | named | until it is known | unsaid | not allowed |\n|---|" + strings.Repeat("--:|", len(whats)+4) + "\n"
	for _, end := range endings {
		var sum counts
		text += "| " + end
		for _, what := range whats {
			c := s.all[[2]string{end, what}]
			text += fmt.Sprintf(" | %d: %d", c.rounds, c.named+c.soon+c.unsaid+c.wrong)
			sum = counts{sum.rounds + c.rounds, sum.named + c.named, sum.soon + c.soon, sum.unsaid + c.unsaid, sum.wrong + c.wrong}
		}
		text += fmt.Sprintf(" | %d | %d | %d | %d |\n", sum.named, sum.soon, sum.unsaid, sum.wrong)
	}
	return text
}
