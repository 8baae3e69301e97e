// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9"
)

const (
	// settle is how long the clients run before the faults begin, from the first lock.
	settle = 300 * time.Millisecond
	// recoveryLimit is how long it may take until a node votes, or a client is granted the lock, once no fault is left, see beside.
	// Most of it is for go-redis, which by default waits four times 3 s for a lost reply.
	recoveryLimit = 20 * time.Second
)

// run is one run of a schedule.
type run struct {
	t        *testserver.Program
	hasp     bool // and no other library
	broken   string
	s        *Schedule
	wires    *wires // nil: the links are proxies
	servers  servers
	nodes    []*node   // those of Redis
	ensemble *ensemble // those of another engine
	agents   *agents   // nil: clients have none
	stage    *player.Stage
	records  []record // what the clients said; added to where they are heard
	left     []string // that clients ended by themselves, or with a complaint; likewise
	state    string
	patience time.Duration // hangLimit, and what may come beside it; but for tests
	lastLoss Mono          // when a node last lost data
	over     Mono          // when the last fault had ended
	voting   Mono          // when all nodes voted after that
	injected []injected
}

// injected is an action, with the times before and after it.
type injected struct {
	Action
	from, to Mono
}

// room is what limits how many schedules the tests run at once; nil: nothing does.
var room chan struct{}

// perform runs a schedule, and returns the outcome. The error says why it could not be run.
func perform(ctx context.Context, broken string, s *Schedule) (*Outcome, error) {
	if room != nil {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	begun := now()
	out, err := testserver.Perform(ctx, func(t *testserver.Program) *Outcome {
		r := &run{t: t, hasp: variants[broken].library == nil, broken: broken, s: s, patience: hangLimit + s.beside()}
		if s.Shared {
			var err error
			r.state, err = os.MkdirTemp("", "hasp-waits-")
			t.Must(err)
			t.Cleanup(func() { _ = os.RemoveAll(r.state) })
		}
		return r.all()
	})
	if out != nil {
		out.Took = now().Sub(begun)
	}
	return out, err
}

func (r *run) all() *Outcome {
	if r.s.Wired {
		r.wires = newWires(r.t)
	}
	if r.s.engine() {
		r.ensemble = newEnsemble(r.t, r.s.Store)
		r.servers = r.ensemble
	} else {
		for i := range r.s.on() {
			r.nodes = append(r.nodes, newNode(r.t, r.s.Keep[i], r.s.FakesClocks(), r.wires.node(i)))
		}
		r.servers = redises(r.nodes)
		r.t.Must(r.admit())
	}
	if r.s.Agent != "" {
		r.agents = newAgents(r)
	}
	r.open(func(slot int) (*exec.Cmd, player.Job) {
		return player.Again(clientEnv, r.wires.client(slot)...), r.job(slot)
	})
	if !r.await(func(e record) bool { return e.What == player.Granted }) {
		r.t.Must(errors.Join(errors.New("no client was granted a lock"), r.stage.Err()))
	}
	r.sleep(settle)
	r.injectAll(r.s.Actions)
	late := r.readmitted()
	r.voting = now()
	r.injectAll(r.s.AfterRecovery)
	late = append(late, r.recover()...)
	r.sleep(r.calm())
	hung := r.stopClients()
	o := r.judge(late, hung)
	if r.wires != nil {
		o.Dropped, o.Resent = r.wires.traffic()
	}
	return o
}

// open starts the clients.
func (r *run) open(client func(slot int) (*exec.Cmd, player.Job)) {
	trial := &player.Trial{Clients: clients, Seed: r.s.Seed, Draw: r.draw, Client: client, Hear: r.hear}
	r.stage = trial.Open()
	r.t.Cleanup(r.stage.End)
	r.t.Must(r.stage.Err())
	if r.ensemble != nil {
		r.ensemble.stage = r.stage
	}
}

// hear notes what a client says, and that it has ended.
func (r *run) hear(_ *player.Book, m *player.Member, e *player.Event) {
	if e != nil {
		if e.What == agentStarted {
			r.agents.has(m.Slot, e.Value)
		}
		if r.ensemble != nil {
			r.ensemble.last.hear(m, e)
		}
		r.records = append(r.records, record{m.ID, *e})
	} else if text := m.Errors(); !m.Killed && (text != "" || !m.Order.Stop) {
		r.left = append(r.left, fmt.Sprintf("client %d ended by itself:\n%s", m.ID, text))
	}
}

// of returns the latest client of a slot, of those that were started before an instant; nil: none was.
func (r *run) of(slot int, before Mono) (latest *player.Member) {
	for _, m := range r.stage.All {
		if m.Slot == slot && m.Since < before {
			latest = m
		}
	}
	return latest
}

// calm is for how long the clients go on after the faults, so that keys are free, and wanted, when no fault is the reason: with one
// server or a few links that is so all the time, and a group of Redis takes its time to settle.
func (r *run) calm() time.Duration {
	if slices.Contains(engines.Replicated, r.s.Store) {
		return r.s.lingers() + backOn + 2*time.Second
	}
	return 0
}

// await passes on what the clients report, from the beginning, until enough is said. It reports false when the patience is over,
// or a client has ended by itself.
func (r *run) await(enough func(record) bool) bool {
	seen, met := 0, false
	r.stage.Await(r.patience, func() bool {
		for ; seen < len(r.records) && !met; seen++ {
			met = enough(r.records[seen])
		}
		return met || len(r.left) > 0
	})
	r.t.Must(context.Cause(r.t.Context()))
	return met
}

// play carries out one action.
func (r *run) play(a Action) {
	switch {
	case r.agents != nil && r.agents.play(a):
	case a.Kind == ClientStop || a.Kind == ClientKill:
		r.injectClient(a)
	case a.Kind == CutAll:
		for c := range clients {
			a.Client = c
			for n := range r.s.on() {
				r.servers.link(a, n)
			}
		}
	case a.Client >= 0 && r.wires != nil:
		r.wires.play(a)
	case a.Client >= 0:
		for _, n := range a.Nodes {
			r.servers.link(a, n)
		}
	default:
		r.servers.play(a)
	}
}

// servers are the servers of a run: where a client finds them, and what is done to them and to the client's links.
type servers interface {
	addrs(client int) []string
	link(a Action, node int)
	play(a Action)
}

func (r *run) injectClient(a Action) {
	m := r.of(a.Client, never)
	var err error
	switch {
	case a.Kind == ClientStop && a.Part == Begin:
		err = m.Pause()
	case a.Kind == ClientStop:
		err = m.Resume()
	case a.Part == Begin:
		r.stage.Do(func() { m.Killed = true })
		m.Kill()
	default:
		r.stage.Start(a.Client)
		err = r.stage.Err()
	}
	if errors.Is(err, os.ErrProcessDone) {
		<-m.Ended
		err = fmt.Errorf("client %d ended by itself:\n%s", m.ID, m.Errors())
	}
	if err != nil {
		r.t.Must(errors.Join(fmt.Errorf("%v", a), err))
	}
}

// injectAll carries out actions, each at its time from now on.
func (r *run) injectAll(actions []Action) {
	if len(actions) > 0 && actions[0].Client == aHolder {
		r.agents.aim(actions)
	}
	start := now()
	for _, a := range actions {
		r.sleep(start.Add(a.At).Sub(now()))
		from := now()
		r.play(a)
		r.injected = append(r.injected, injected{a, from, now()})
		if a.forgets() {
			r.lastLoss = now()
		}
	}
	r.over = now()
}

// sleep waits, and ends the run if it is interrupted.
func (r *run) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.t.Context().Done():
		r.t.Must(context.Cause(r.t.Context()))
	}
}

// admit admits the new servers on behalf of the operator.
func (r *run) admit() error {
	if !r.hasp || !r.s.records() {
		return nil
	}
	var conns []*redis.Client
	for _, n := range r.nodes {
		conns = append(conns, direct(n.server))
	}
	var all []voting.Node
	for _, n := range nodesOf(conns, r.s.MaxTTL) {
		all = append(all, n)
	}
	c := &engines.Conn{Driver: all[0], Disconnect: func() error { return closeAll(conns) }}
	if r.s.Store == Redlock {
		c.Driver = quorum.New(all, nil)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), commandLimit)
	defer cancel()
	return c.Admit(ctx)
}

// job is that of the client of a slot.
func (r *run) job(slot int) player.Job {
	j := job{Store: r.s.Store, Addrs: r.servers.addrs(slot), Skew: r.s.Skew[slot], State: r.state, Strict: r.s.Strict}
	if r.agents != nil {
		j.Agent = &agentJob{r.agents.way(slot), r.s.Linger, r.s.Heirs[slot], r.s.Alive}
	}
	return j.of(r.s.MaxTTL, r.broken)
}

// draw draws the next order of a client: one key, which it uses without checking that its lease is valid, like a process
// that was stopped between the check and the write.
func (r *run) draw(draws *rand.Rand) player.Order {
	s, shares := r.s, r.hasp
	o := player.Order{
		Wants: []player.Want{{Key: fmt.Sprintf("k%d", draws.IntN(keys)), Shared: shares && draws.IntN(5) < 2}},
		Try:   draws.IntN(5) == 0 || s.Polls,
		Limit: player.Between(draws, time.Second, 9*time.Second), Hold: player.Between(draws, 2*time.Millisecond, shortHold),
		Rest: player.Between(draws, 0, 30*time.Millisecond),
	}
	if r.agents != nil {
		o.Limit += s.MaxTTL // some outwait a lease that ends by itself
	}
	if o.Try {
		o.Rest = player.Between(draws, 5*time.Millisecond, 60*time.Millisecond)
	}
	if s.Hasty && draws.IntN(2) == 0 {
		o.Limit = player.Between(draws, 20*time.Millisecond, 800*time.Millisecond)
	}
	if draws.IntN(s.Long) == 0 { // long enough for a renewal or two
		o.Hold = player.Between(draws, s.MaxTTL/3, cmp.Or(s.Longest, s.MaxTTL*3/2))
	}
	if s.Alone {
		o.Wants[0].Shared, o.Hold = false, s.Longest
	}
	if shares && r.agents == nil && !o.Wants[0].Shared && draws.IntN(3) == 0 { // and half of it as a reader
		o.Downgrade, o.Hold = true, o.Hold*3/4
	}
	if r.ensemble != nil {
		return r.ensemble.last.aim(o, s.Longest)
	}
	return o
}

// readmitted waits until all nodes vote again, also nodes that lost data, and returns the nodes that take too long.
func (r *run) readmitted() (late []string) {
	if !r.hasp || !r.s.records() {
		return nil
	}
	wait := admission.Wait(r.s.MaxTTL)
	r.sleep(r.lastLoss.Add(wait).Sub(now()))
	before := r.stage.Stalled()
	for i, n := range r.nodes {
		for !r.votes(n) {
			// A client has seen the record at the end of the faults at the latest.
			if over := now().Sub(r.over.Add(wait)); over > recoveryLimit+r.stage.Stalled()-before {
				late = append(late, fmt.Sprintf("node %d does not vote %v after it should", i, over))
				break
			}
			r.sleep(50 * time.Millisecond)
		}
	}
	return late
}

// votes reports whether a node votes, by its record.
func (r *run) votes(n *node) bool {
	rdb := direct(n.server)
	defer rdb.Close()
	d := redisdriver.NewNode(rdb, r.s.MaxTTL, nil)
	defer d.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), commandLimit)
	defer cancel()
	rec, err := d.Record(ctx)
	return err == nil && rec.Voting
}

// recover waits until every client has been granted a lock after the faults, and returns the clients that waited for too long.
func (r *run) recover() (late []string) {
	waiting := map[int]bool{}
	for slot := range clients {
		waiting[r.of(slot, never).ID] = true
	}
	before := r.stage.Stalled()
	r.await(func(e record) bool {
		if e.What == player.Granted && e.At > r.over && waiting[e.Client] {
			delete(waiting, e.Client)
			if took := e.At.Sub(r.over); took > recoveryLimit+r.s.beside()+r.stage.Stalled()-before {
				late = append(late, fmt.Sprintf("client %d had the lock only %v after the faults", e.Client, took))
			}
		}
		return len(waiting) == 0
	})
	for id := range waiting {
		late = append(late, fmt.Sprintf("client %d never had the lock again, for %v", id, now().Sub(r.over)))
	}
	return late
}

// stopClients stops the clients, and returns the clients that do not end, with their stacks.
func (r *run) stopClients() (hung []string) {
	for _, m := range r.stage.Close(r.patience) {
		r.stage.Do(func() { m.Killed = true })
		_ = m.Signal(syscall.SIGQUIT) // makes Go print the stacks
		select {
		case <-m.Ended:
		case <-time.After(5 * time.Second):
		}
		m.Kill()
		hung = append(hung, fmt.Sprintf("client %d hangs:\n%s", m.ID, m.Errors()))
	}
	r.stage.End()
	return append(hung, r.left...)
}

// record is an event of a client.
type record struct {
	Client int `json:"client"` // numbers all processes of a run, from 1
	player.Event
}
