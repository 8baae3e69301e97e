// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/pipe"
	"github.com/hasplock/hasp/verify/engines"
	"golang.org/x/sys/unix"
)

// agents are the processes of hasp agent through which the clients of a schedule lock. The clients of the slots 0 and 1 share one,
// the first of them behind a link; that of slot 2 has one alone; and that of slot 3 starts one as its child, on standard input and output.
type agents struct {
	r    *run
	dir  string
	proc [clients]*os.Process // at the slots 0 and 2; and at 3, for where the clients are heard
	link *faultproxy.Proxy    // of slot 0
}

// agentOf is the slot that an agent is called after.
func agentOf(slot int) int { return []int{0, 0, 2, 3}[slot] }

func newAgents(r *run) *agents {
	dir, err := os.MkdirTemp("", "hasp-agent-")
	r.t.Must(err)
	r.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := &agents{r: r, dir: dir}
	a.start(0)
	a.start(2)
	l, err := net.Listen("unix", filepath.Join(dir, "link"))
	r.t.Must(err)
	a.link = faultproxy.On(r.t, l, a.socket(0))
	return a
}

func (a *agents) socket(slot int) string { return filepath.Join(a.dir, fmt.Sprint(slot)) }

// line starts an agent.
func (a *agents) line(slot int, more ...string) []string {
	scheme := "redis://"
	if a.r.s.Store == engines.SQLite {
		scheme = "sqlite:"
	}
	return append([]string{a.r.s.Agent, "agent", "--store", scheme + a.r.servers.addrs(slot)[0]}, more...)
}

func (a *agents) start(slot int) {
	line := a.line(slot, "--listen", "unix:"+a.socket(slot))
	p, err := player.Start(0, exec.Command(line[0], line[1:]...), func(any) {})
	a.r.t.Must(err)
	a.has(slot, p.PID)
}

// has notes the process of an agent.
func (a *agents) has(slot, pid int) {
	p, err := os.FindProcess(pid)
	a.r.t.Must(err)
	a.proc[slot] = p
	a.r.t.Cleanup(func() { _ = p.Kill() }) // most have ended
}

// way is how the client of a slot comes to its agent: a socket, or a command line.
func (a *agents) way(slot int) []string {
	switch slot {
	case 0:
		return []string{a.link.Addr()}
	case 3:
		return a.line(3, "--stdio")
	}
	return []string{a.socket(agentOf(slot))}
}

// aHolder is Client of the faults of a client that was just granted a key, which a client of another agent waits for; or of its agent.
const aHolder = -2

// aim finds that client, and directs the actions at it.
func (a *agents) aim(actions []Action) {
	s, slot := a.r.stage, 0
	s.Await(a.r.patience, func() bool {
		i := slices.IndexFunc(s.Attempts, func(h *player.Attempt) bool {
			return h.Granted != 0 && h.Ended == 0 && now().Sub(h.Granted) < a.r.s.MaxTTL/4 && slices.ContainsFunc(s.Attempts,
				func(w *player.Attempt) bool {
					return w.Waits() && w.Key == h.Key && agentOf(w.By.Slot) != agentOf(h.By.Slot)
				})
		})
		if i >= 0 {
			slot = s.Attempts[i].By.Slot
		}
		return i >= 0
	})
	for i := range actions {
		if actions[i].Client = slot; actions[i].Kind != ClientKill {
			actions[i].Client = agentOf(slot)
		}
	}
}

// play begins or ends a fault; false: it is none of these.
func (a *agents) play(on Action) bool {
	begin, signal := on.Part == Begin, syscall.Signal(0)
	switch {
	case on.Kind == AgentStop && begin:
		signal = syscall.SIGSTOP
	case on.Kind == AgentStop:
		signal = syscall.SIGCONT
	case on.Kind == AgentKill && begin:
		signal = syscall.SIGKILL
	case on.Kind == AgentKill && on.Client == 3: // its client starts another
	case on.Kind == AgentKill:
		a.start(on.Client)
	case on.Kind == CutPipe:
		a.link.CloseAll()
	case on.Kind == FillPipe:
		go fill(a.socket(on.Client))
	default:
		return false
	}
	a.r.stage.Do(func() {
		if p := a.proc[on.Client]; p != nil {
			_ = p.Signal(signal) // that of a client may have ended with it
		}
	})
	return true
}

// fill sends an agent requests whose answers are not read, until it ends the connection.
func fill(path string) {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil { // it is away
		return
	}
	defer c.Close()
	err = c.SetDeadline(time.Now().Add(2 * time.Second))
	for n := 0; err == nil; n++ {
		_, err = fmt.Fprintf(c, `{"jsonrpc":"2.0","id":%d,"method":"hello"}`+"\n", n)
	}
}

// The faults of agents, and of their pipes.
const (
	AgentStop Kind = "agent stopped (SIGSTOP) beyond its leases, then continued"
	AgentKill Kind = "agent killed (kill -9), and started again"
	CutPipe   Kind = "connection of a client and its agent cut"
	FillPipe  Kind = "requests to an agent whose answers are not read"
)

var agentFaults = []incident{
	{kind: AgentStop, where: anAgent(0, 2, 3), most: 300, beyond: func(s *Schedule) ms { return msOf(s.MaxTTL) * 11 / 10 }},
	{kind: AgentKill, where: anAgent(0, 2, 3), least: 50, most: 1500},
	{kind: CutPipe, where: anAgent(0)},
	{kind: FillPipe, where: anAgent(0, 2)},
}

func anAgent(of ...int) func(*generator, ms, ms) ([]int, int, bool) {
	return func(g *generator, from, to ms) ([]int, int, bool) {
		slot := one(g, of...)
		return nil, slot, reserve(g.agents[:], from, to, slot)
	}
}

// agentCatalogue lists the kinds of fault of a store whose clients lock through agents: SQLite, or one Redis that keeps what it was told.
func agentCatalogue(of Store) []incident {
	all := slices.Concat(agentFaults, processFaults)
	if of == Redis {
		all = slices.Concat(all, linkFaults, []incident{special(RestartAOF, restart(KeepAlways)), {kind: StopNode, where: aNode, least: 100, most: 2400},
			special(RefuseWrites, (*generator).refuseWrites), slowLink, resetLinks, cutAll})
	}
	return all
}

// GenerateAgents is Generate for clients that lock through the command at a path. A client may have a child that inherits its
// connection and outlives it for a time, and its locks may linger.
func GenerateAgents(of Store, seed uint64, command string) *Schedule {
	g := newGenerator(seed, 0x686173706167656e, of)
	g.s.Agent, g.s.Keep[0] = command, KeepAlways
	g.s.MaxTTL = one(g, 1500*time.Millisecond, 1500*time.Millisecond, 3*time.Second, 6*time.Second)
	g.s.Longest = min(g.s.MaxTTL*3/2, 4*time.Second)
	g.s.Long, g.s.Hasty, g.s.Linger, g.s.Alive = one(g, 1, 3, 12), g.IntN(3) == 0, one(g, 0, g.s.MaxTTL), one(g, 0, g.s.MaxTTL*2/3)
	for c := range g.s.Heirs {
		g.s.Heirs[c] = one(g, 0, time.Duration(g.between(200, 1200))*time.Millisecond)
	}
	g.fill()
	g.add(one(g, agentFaults...))
	byTime(g.s.Actions)
	return g.s
}

// dead returns the holds of clients that were killed while they had them, each with the kill.
func (r *run) dead() map[*player.Hold]int {
	all := map[*player.Hold]int{}
	for i, a := range r.injected {
		if a.Kind == ClientKill && a.Part == Begin {
			for _, h := range r.of(a.Client, a.from).Open {
				all[h] = i
			}
		}
	}
	return all
}

// stays is for how long what a client has stays its own after its end.
func (r *run) stays(client int) time.Duration { return r.s.Heirs[client] + r.s.Linger }

// relied changes until when no other may have what a client held. Of a killed one that is until its heir has ended, and what lingers is
// over, or until its lease would have ended. Of one that was cut off it is until then, unless its locks linger: the agent and the
// client do not learn of it at one instant.
func (r *run) relied(holds []history.Hold) {
	b, dead := r.stage.Book, r.dead()
	for i, h := range b.Holds {
		ends := func(at time.Time) {
			if at.Before(holds[i].To) {
				holds[i].To = at
			}
		}
		if kill, ok := dead[h]; ok {
			a := r.injected[kill]
			holds[i].Cut = true
			ends(b.Wall(a.from.Add(r.stays(a.Client))))
		}
		for _, a := range r.injected {
			if a.Kind == CutPipe && r.s.Linger == 0 && r.slotOf(h) == a.Client && Mono(h.Asked) < a.to {
				ends(b.Wall(a.from))
			}
		}
	}
}

// slotOf is that of a hold's client.
func (r *run) slotOf(h *player.Hold) int {
	return r.stage.All[slices.IndexFunc(r.stage.All, func(m *player.Member) bool { return m.String() == h.Owner })].Slot
}

// judged returns whether what follows from a fault must come before the deadline of a hold: that is later than the fault by a second, what
// a process stood still, and some time more; and no other fault is under way.
func (r *run) judged(fault int, h *player.Hold, more time.Duration) bool {
	a, until := r.injected[fault], Mono(h.Deadline.Sub(r.stage.Wall(0)))
	if until.Sub(a.to) < more+time.Second+stallsOf(r.records).longest(a.from.Time(), until.Time()) {
		return false
	}
	return !slices.ContainsFunc(r.injected, func(b injected) bool {
		return (b.Kind != a.Kind || b.Client != a.Client || b.to < a.to) && b.Part != Prepare && b.to.Add(r.s.lingers()+backOn) > a.from && b.from < until
	})
}

// deaf finds clients that took a lease for theirs until its deadline after their agent had been killed, or their connection cut.
func (r *run) deaf() (found []string) {
	for i, a := range r.injected {
		for _, h := range r.stage.Holds {
			slot := r.slotOf(h)
			struck := a.Kind == CutPipe && slot == a.Client || a.Kind == AgentKill && a.Part == Begin && agentOf(slot) == a.Client
			if struck && Mono(h.Granted) < a.from && h.To.Equal(h.Deadline) && r.judged(i, h, 0) {
				found = append(found, fmt.Sprintf("%s had %q until its deadline, after %q", h.Owner, h.Key, a.Kind))
			}
		}
	}
	return found
}

// kept finds keys of killed clients that another was waiting for, and had only when the lease would have ended by itself.
func (r *run) kept() (found []string) {
	for h, i := range r.dead() {
		a, until := r.injected[i], Mono(h.Deadline.Sub(r.stage.Wall(0)))
		some := func(is func(*player.Attempt) bool) bool {
			return slices.ContainsFunc(r.stage.Attempts, func(s *player.Attempt) bool { return s.Key == h.Key && is(s) })
		}
		waits := some(func(s *player.Attempt) bool {
			return s.Asked < a.from && (s.Waits() || max(s.Granted, s.Failed) > until)
		})
		next := some(func(s *player.Attempt) bool { return s.Granted > a.from && s.Granted < until })
		if !h.Shared && waits && !next && r.judged(i, h, r.stays(a.Client)) {
			found = append(found, fmt.Sprintf("%s was killed, and the next had %q only when its lease was over", h.Owner, h.Key))
		}
	}
	return found
}

// agentJob is what a client of an agent needs to know.
type agentJob struct {
	Way                 []string // see agents
	Linger, Heir, Alive time.Duration
}

// agentStarted is an event: Value is the process.
const agentStarted player.What = "agent"

// agentLocks are the locks of an agent, to which a client connects when it asks for the first, and again when its connection has ended.
type agentLocks struct {
	player.Locks // none: see Acquire
	job          agentJob
	ttl          time.Duration
	broken       func(agentLease) player.Lease
	report       func(player.Event)
	stood        func() time.Duration

	c     *pipe.Client
	heir  io.Closer  // while it is open, the child with the connection lives
	grant pipe.Grant // the latest
}

func (l *agentLocks) Attend(report func(player.Event)) { l.report = report }

func (l *agentLocks) Note(e *player.Event) {
	if e.Stood = l.stood(); e.What != player.Granted {
		return
	}
	if e.Most = mostOf(l.grant.Until); e.Deadline > e.Most { // or the agent has prolonged it since
		var s pipe.Status // the zero value: it does not say
		_ = l.c.Call(context.Background(), "status", map[string]string{"lease": l.grant.Lease}, &s)
		e.Most = mostOf(s.Until)
	}
}

// mostOf is an agent's deadline.
func mostOf(u pipe.Until) Mono {
	ns, _ := strconv.ParseInt(u.Deadline, 10, 64) // 0: it is not known
	return Mono(ns)
}

func (l *agentLocks) Close() error {
	if l.c == nil {
		return nil
	}
	return l.c.Close()
}

// stdio are the pipes to a child.
type stdio struct {
	io.WriteCloser
	io.Reader
}

// connect connects to the agent, or starts it.
func (l *agentLocks) connect(ctx context.Context) error {
	var rwc io.ReadWriteCloser
	var ours any // the end whose close the agent sees
	if len(l.job.Way) == 1 {
		c, err := net.Dial("unix", l.job.Way[0])
		if err != nil {
			return err
		}
		rwc, ours = c, c
	} else {
		cmd := exec.Command(l.job.Way[0], l.job.Way[1:]...)
		in, err := cmd.StdinPipe()
		out, failed := cmd.StdoutPipe()
		if err := errors.Join(err, failed, cmd.Start()); err != nil {
			return err
		}
		l.report(player.Event{What: agentStarted, Value: cmd.Process.Pid})
		rwc, ours = stdio{in, out}, in
	}
	err := l.beget(ours.(syscall.Conn))
	if err == nil {
		l.c, err = pipe.NewClient(ctx, rwc, "campaign", l.job.Alive)
	}
	return err
}

// beget starts a child that inherits the connection, and lives for a time after this process, or this connection, has ended.
func (l *agentLocks) beget(c syscall.Conn) error {
	if l.heir != nil {
		_ = l.heir.Close()
		l.heir = nil
	}
	if l.job.Heir == 0 {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	child := exec.Command("sh", "-c", fmt.Sprintf("cat; exec sleep %f", l.job.Heir.Seconds()))
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // or it is hung up with a group in which an agent is stopped
	if l.heir, err = child.StdinPipe(); err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		_, _ = unix.FcntlInt(fd, unix.F_SETFD, 0)
		err = child.Start()
		unix.CloseOnExec(int(fd))
	})
	return errors.Join(failed, err)
}

// Acquire asks for the key of an order.
func (l *agentLocks) Acquire(ctx context.Context, o *player.Order) (*player.Holding, error) {
	if l.c == nil {
		if err := l.connect(ctx); err != nil {
			time.Sleep(20 * time.Millisecond) // it will be started again
			return nil, err
		}
	}
	p := pipe.LockParams{Key: o.Wants[0].Key, TTL: pipe.InMillis(l.ttl), Linger: pipe.InMillis(l.job.Linger)}
	lease := agentLease{mode: hasp.Exclusive, asked: time.Now()}
	if o.Wants[0].Shared {
		p.Mode, lease.mode = "shared", hasp.Shared
	}
	if o.Try {
		p.Wait = new(pipe.Millis)
	}
	var err error
	lease.Lease, err = l.c.Lock(ctx, p)
	if err != nil {
		if !errors.As(err, new(*pipe.Error)) && !errors.Is(err, ctx.Err()) {
			l.c.Kill()
			l.c = nil
		}
		return nil, err
	}
	l.grant = lease.Grant
	as := player.Lease(lease)
	if l.broken != nil {
		as = l.broken(lease)
	}
	go func() { // its deadline moves
		for {
			select {
			case <-time.After(l.ttl / 8):
				l.report(player.Of(player.Renewed, as))
			case <-lease.Done():
				return
			}
		}
	}()
	return &player.Holding{Leases: []player.Lease{as}, Done: as.Done(), Release: lease.Release}, nil
}

// agentLease is a lease of an agent.
type agentLease struct {
	*pipe.Lease
	mode  hasp.Mode
	asked time.Time
}

func (l agentLease) Key() string                   { return l.Keys[0].Key }
func (l agentLease) Owner() string                 { return l.Keys[0].Owner }
func (l agentLease) Mode() hasp.Mode               { return l.mode }
func (l agentLease) Abandoned() bool               { return l.Grant.Abandoned }
func (agentLease) Slot() int                       { return 0 }
func (agentLease) Downgrade(context.Context) error { return errors.ErrUnsupported }

func (l agentLease) Fence() uint64 {
	n, _ := strconv.ParseUint(l.Grant.Fence, 10, 64) // 0 does not rise
	return n
}
