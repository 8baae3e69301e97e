// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9"
)

// sabotage is a variant, the schedule in which it shows, and the oracle that notices. In the same schedule, hasp as it is must have no
// violation. Those of Redlock are in verify/simulate.
type sabotage struct {
	name string
	variant
	on     engines.Kind // instead of the server that the schedule names
	plan   Schedule
	oracle string
}

func init() {
	for _, s := range slices.Concat(loneVariants, engineVariants, replicaVariants, redsyncVariants) {
		variants[s.name] = &s.variant
	}
}

// loneVariants are hasp on one server with a safeguard removed.
var loneVariants = []*sabotage{
	{
		name: "renewals counted from the answer", variant: variant{whole: broken.LateRenew}, oracle: TimelyEnd, // with holds of several renewals
		plan: Schedule{Long: 1, Actions: linkFault(Delay, 2*time.Second, 200*time.Millisecond)},
	},
	{name: "leases without drift", variant: variant{whole: broken.NoDrift}, oracle: TimelyEnd},
	{
		name: "a waiter that enters counts from when the message came", variant: variant{whole: broken.LateEnter}, oracle: TimelyEnd,
		plan: Schedule{Actions: linkFault(Delay, 6*time.Second, 50*time.Millisecond)},
	},
	{name: "renewals without an answer count", variant: variant{whole: broken.AssumeRenewed}, oracle: TimelyEnd, plan: cutOff},
	{
		name: "a release that compares nothing", variant: variant{node: broken.BlindRelease}, oracle: Exclusion, // with waiters that give up
		plan: Schedule{Long: 3, Hasty: true, Actions: []Action{noop(6 * time.Second)}},
	},
	{name: "no hints", variant: variant{whole: broken.NoHints}, oracle: Idle, plan: unheard},
}

// engineVariants are hasp on another engine with a safeguard removed.
var engineVariants = []*sabotage{
	{name: "everybody shares", variant: variant{whole: broken.EverybodyShares}, on: engines.Etcd, oracle: Exclusion},
	{name: "fences that fall", variant: variant{whole: broken.FallingFences}, on: engines.Etcd, oracle: Fences},
	{name: "hints that are dropped", variant: variant{whole: broken.NoHints}, on: engines.Etcd, oracle: Idle, plan: unheard},
	{
		name: "a lost lease that is not told", variant: variant{whole: broken.Untold}, on: engines.Etcd, oracle: Told, // before the next renewal, which must be far
		plan: Schedule{MaxTTL: 6 * time.Second, Long: 1, Longest: 6 * time.Second, Actions: breaks()},
	},
	{name: "renewals that are assumed", variant: variant{whole: broken.AssumeRenewed}, on: engines.Etcd, oracle: TimelyEnd, plan: cutOff},
}

// replicaVariants are hasp on Redis with replicas, with a safeguard removed.
var replicaVariants = []*sabotage{
	{name: "the replicas of a master are not asked", variant: variant{opens: engines.Sentinel}, on: engines.SentinelReplicas, oracle: Kept, plan: lagging},
	{name: "the replica of a cluster's master is not asked", variant: variant{opens: engines.Cluster}, on: engines.ClusterReplicas, oracle: Kept, plan: lagging},
}

// redsyncVariants are redsync, which lacks all safeguards of a node that forgets.
var redsyncVariants = []*sabotage{
	{name: "redsync, nodes restart empty", variant: variant{library: openRedsync}, oracle: Exclusion, plan: again(RestartEmpty, 0, 0, 1, 2)},
	{name: "redsync, nodes are flushed", variant: variant{library: openRedsync}, oracle: Exclusion, plan: again(Flush, 0, 0, 1, 2)},
	{name: "redsync, one node restarts empty", variant: variant{library: openRedsync}, oracle: Exclusion, plan: apart(again(RestartEmpty, 0, 2))},
	{name: "redsync, one node is flushed", variant: variant{library: openRedsync}, oracle: Exclusion, plan: apart(again(Flush, 0, 2))},
}

var (
	// unheard: a waiter that hears nothing asks once in a third of its TTL, and that must be long beside what a slow machine
	// takes, which the oracle subtracts.
	unheard = Schedule{MaxTTL: 6 * time.Second, Longest: 3 * time.Second, Actions: []Action{noop(3 * time.Second)}}
	// cutOff: holders of long leases are cut off.
	cutOff = Schedule{Long: 1, Actions: linkFault(Partition, 1500*time.Millisecond, 0)}
	// lagging: a master that is killed right after a grant that its replicas lack. The lease must outlast the failover; no event takes
	// longer than a busy machine needs for it, and if the replicas confirm each lease, the master is killed after By.
	lagging = Schedule{Seed: 1, MaxTTL: 24 * time.Second, Long: 1e6, Longest: 9 * time.Second, Actions: []Action{
		{At: 500 * time.Millisecond, Kind: KillLagging, Part: Begin, Client: -1, By: 20 * time.Second, How: overtaken},
		{At: time.Second, Kind: KillLagging, Part: End, Client: -1, How: overtaken},
	}}
)

// schedule returns the schedule in which the variant shows, of at least two seconds on one Redis if it says nothing else.
func (v *sabotage) schedule() *Schedule {
	s := v.plan
	s.Store, s.Actions = cmp.Or(s.Store, v.on, Redis), slices.Clone(s.Actions)
	if v.opens != "" {
		return &s
	}
	s.MaxTTL, s.Long, s.Keep[0], s.Strict = cmp.Or(s.MaxTTL, time.Second), cmp.Or(s.Long, 12), KeepNothing, true
	s.Actions = append(s.Actions, noop(2*time.Second))
	return &s
}

// again is a schedule of Redlock in which some nodes have a fault, again and again.
func again(k Kind, by time.Duration, on ...int) Schedule {
	g := &generator{s: &Schedule{Store: Redlock, MaxTTL: 2 * time.Second, Long: 1, Strict: true}}
	for at := ms(700); at < faultsLast; at += 700 {
		if g.act(at, k, Begin, on, -1, by); k == RestartEmpty {
			g.act(at+20, k, End, on, -1, 0)
		}
	}
	return *g.s
}

// apart is a schedule in which some clients reach the nodes of the left side only and the others those of the right, so that node
// 2, which both sides have, decides.
func apart(s Schedule) Schedule {
	g := &generator{s: &s}
	for c := range clients {
		away := [][]int{{3, 4}, {0, 1}}[c%2]
		g.act(0, Partition, Begin, away, c, 0)
		g.act(faultsLast, Partition, End, away, c, 0)
	}
	byTime(s.Actions)
	return s
}

// noop is an action without effect.
func noop(at time.Duration) Action { return Action{At: at, Kind: ResetLinks, Part: Prepare} }

// breaks are leases that an operator breaks, now and then.
func breaks() (all []Action) {
	for at := 2500 * time.Millisecond; at < 10*time.Second; at += 2500 * time.Millisecond {
		all = append(all, Action{At: at, Kind: Break, Part: Begin, Client: -1})
	}
	return all
}

// linkFault returns the actions of a fault of all clients' links, from the beginning to a time.
func linkFault(k Kind, to, by time.Duration) (all []Action) {
	for c := range 2 * clients {
		a := Action{Kind: k, Part: Begin, Nodes: []int{0}, Client: c % clients, By: by}
		if c >= clients {
			a.At, a.Part, a.By = to, End, 0
		}
		all = append(all, a)
	}
	return all
}

// Rule: without a safeguard the campaign of one server finds a violation, in one of
// some runs of a schedule in which hasp as it is has none.
func TestBrokenLoneVariantsAreCaught(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	checkVariants(t, loneVariants)
}

// Rule: nodes that restart empty, or are flushed, give redsync two holders, and hasp none.
func TestRedsyncIsCaught(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	checkVariants(t, redsyncVariants)
}

// Rule: a node that every majority needs, and whose clock steps forward, makes two holders, as of every Redlock; their fences have
// the late write refused.
func TestClockForwardMakesTwoHolders(t *testing.T) {
	testserver.Require(t, "redis")
	if err := testserver.CanStepClocks(); err != nil {
		t.Skipf("SKIPPED WITHOUT A FAKE CLOCK: %v", err)
	}
	t.Parallel()
	s := again(ClockForward, time.Minute, 2)
	s.MaxTTL, s.Long, s.Polls = 6*time.Second, 2, true // the others ask many times before the holder renews, and some finish before it
	s.Actions = append(s.Actions, wired(0, true, true).Actions...)
	byTime(s.Actions)
	checkTwoHolders(t, s)
}

// checkVariants runs the schedule of each, as hasp is and without its safeguard.
func checkVariants(t *testing.T, variants []*sabotage) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			found := false
			for run := 0; run <= mostRuns && !found; run++ {
				broken := v.name
				if run == 0 {
					broken = ""
				}
				o, err := perform(t.Context(), broken, v.schedule())
				if err != nil {
					t.Fatal(err)
				}
				found = run > 0 && slices.ContainsFunc(o.Verdicts, func(is Verdict) bool { return is.Oracle == v.oracle && is.Violated() })
				var text strings.Builder
				o.Summary(&text)
				if run == 0 && o.Violated() {
					t.Errorf("with nothing broken:\n%s", text.String())
				}
				t.Logf("%+v in %v, open for %v at most: %s", o.Counts, o.Took, o.Open, text.String())
			}
			if !found {
				t.Errorf("%q did not find it", v.oracle)
			}
		})
	}
}

// Rule: without a safeguard the campaign of an engine finds a violation, in one of a few runs of a schedule in which
// hasp as it is has none.
func TestBrokenEngineVariantsAreCaught(t *testing.T) {
	testserver.Require(t, "etcd")
	t.Parallel()
	checkVariants(t, engineVariants)
}

// failovers is of tests that take minutes, and are in make verify.
func failovers(t *testing.T) {
	t.Helper()
	if os.Getenv("HASP_TEST_FAILOVERS") == "" {
		t.Skip("SKIPPED: HASP_TEST_FAILOVERS is not set")
	}
	testserver.Require(t, "redis")
}

// Rule: without a safeguard a failover loses a lease that was granted last, and the campaign finds it.
func TestBrokenReplicaVariantsAreCaught(t *testing.T) {
	failovers(t)
	t.Parallel()
	checkVariants(t, replicaVariants)
}

// Rule: a failover that loses a lease makes two holders, as the source of Redlock describes it, and the fence of the second
// is the larger one: a register that compares fences loses nothing.
func TestFailoverMakesTwoHolders(t *testing.T) {
	failovers(t)
	for _, k := range []engines.Kind{engines.Sentinel, engines.Cluster} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			s := lagging
			s.Seed, s.Store = 1, k
			checkTwoHolders(t, s)
		})
	}
}

// mostRuns bounds the search for a run that shows what a schedule can show: on a slow machine two in five do.
const mostRuns = 20

// checkTwoHolders searches runs of a schedule until two hold a key at once, and a late write is refused by its fence.
func checkTwoHolders(t *testing.T, s Schedule) {
	t.Helper()
	shown := false
	for range mostRuns {
		of := s
		of.Actions = slices.Clone(s.Actions)
		o, err := perform(t.Context(), "", &of)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		o.Summary(&text)
		t.Logf("%+v in %v, both for %v, no grant for %v: %s", o.Counts, o.Took, o.Both, o.Gap, text.String())
		if o.Violated() {
			t.Error("something else is wrong")
		}
		if shown = o.Both > 0 && o.Counts.Stale > 0; shown {
			break
		}
		s.Seed++
	}
	if !shown {
		t.Error("two holders, and a late write that is refused, were not to be seen")
	}
}

// A holder that goes on without the lease that was taken away is found, unless the machine or another fault can be the reason.
func TestUntold(t *testing.T) {
	fenced := func(r record) record { r.Fence = 7; return r }
	hold := func(end int, lost bool) []record {
		more := player.Event{What: player.Ended, Lost: lost}
		if lost {
			more.Closed = msAt(end)
		}
		return []record{ev(1, 0, player.Event{What: player.Asked}), fenced(ev(1, 0, player.Event{What: player.Granted})), fenced(ev(1, 100, player.Event{What: player.Renewed})), fenced(ev(1, end, more))}
	}
	stood := hold(1900, true)
	stood[3].Stood = time.Second
	beside := func(more player.Event) []record { // what another client says before and after
		return slices.Concat([]record{ev(2, 0, player.Event{What: player.Asked})}, hold(1300, true), []record{ev(2, 1400, more)})
	}
	cut := injected{Action: Action{Kind: Partition, Part: Begin, Client: 1, Nodes: []int{0}}, from: msAt(300), to: msAt(300)}
	for name, c := range map[string]struct {
		records  []record
		store    engines.Kind
		injected []injected
		want     string
	}{
		"told at once":           {records: hold(1010, true), store: engines.Etcd},
		"told late":              {records: hold(1300, true), store: engines.Etcd, want: "went on for 300ms and not at most 250ms"},
		"never told":             {records: hold(2500, false), store: engines.Etcd, want: "told: false"},
		"the machine stalled":    {records: stood, store: engines.Etcd},
		"another client stalled": {records: beside(player.Event{What: player.Waiting, Stood: time.Second, Slow: time.Second}), store: engines.Etcd, want: "went on for 300ms and not at most 250ms"},
		"the server stalled":     {records: beside(player.Event{What: player.Waiting, Slow: time.Second}), store: engines.Etcd},
		"by the next renewal":    {records: hold(1300, true), store: engines.MariaDB},
		"after the next renewal": {records: hold(1600, true), store: engines.MariaDB, want: "not at most 583.333333ms"},
		"not renewed yet":        {records: slices.Delete(hold(1300, true), 2, 3), store: engines.Etcd},
		"released before":        {records: hold(900, false), store: engines.Etcd},
		"released at that time":  {records: hold(1100, false), store: engines.Etcd},
		"cut off meanwhile":      {records: hold(1300, true), store: engines.Etcd, injected: []injected{cut}},
		"another's lease":        {records: []record{ev(1, 0, player.Event{What: player.Asked}), ev(1, 0, player.Event{What: player.Granted, Fence: 6}), ev(1, 5000, player.Event{What: player.Ended, Fence: 6})}, store: engines.Etcd},
	} {
		r := &run{s: &Schedule{Store: c.store, MaxTTL: time.Second}, stage: cast(3, c.records...), injected: c.injected,
			ensemble: &ensemble{taken: []takenAway{{"k", 7, msAt(1000)}}}}
		found, _, _ := r.untold(c.records)
		if text := strings.Join(found, "\n"); (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: found %q, want %q", name, text, c.want)
		}
	}
}

// redsyncLocks is redsync on the same nodes, a player.Library.
type redsyncLocks struct {
	player.Locks // nil
	conns        []*redis.Client
	locks        *redsync.Redsync
	ttl          time.Duration
}

func openRedsync(conns []*redis.Client, ttl time.Duration) player.Locks {
	l := &redsyncLocks{conns: conns, ttl: ttl}
	var pools []redsyncredis.Pool
	for _, c := range l.conns {
		pools = append(pools, goredis.NewPool(c))
	}
	l.locks = redsync.New(pools...)
	return l
}

func (l *redsyncLocks) Acquire(ctx context.Context, o *player.Order) (*player.Holding, error) {
	m := l.locks.NewMutex(o.Wants[0].Key, redsync.WithExpiry(l.ttl))
	acquire := m.LockContext
	if o.Try {
		acquire = m.TryLockContext
	}
	if err := acquire(ctx); err != nil {
		return nil, err
	}
	release := func() error {
		ok, err := m.Unlock()
		if err == nil && !ok {
			err = errors.New("not unlocked")
		}
		return err
	}
	return &player.Holding{Leases: []player.Lease{redsyncLease{m}}, Release: release}, nil
}

func (l *redsyncLocks) Close() error { return closeAll(l.conns) }

// redsyncLease is a mutex that is held. It has no fence, and says nothing of a loss.
type redsyncLease struct{ m *redsync.Mutex }

func (l redsyncLease) Key() string                   { return l.m.Name() }
func (l redsyncLease) Owner() string                 { return l.m.Value() }
func (redsyncLease) Fence() uint64                   { return 0 }
func (redsyncLease) Mode() hasp.Mode                 { return hasp.Exclusive }
func (redsyncLease) Slot() int                       { return 0 }
func (redsyncLease) Abandoned() bool                 { return false }
func (l redsyncLease) Deadline() time.Time           { return l.m.Until() }
func (redsyncLease) Done() <-chan struct{}           { return nil }
func (redsyncLease) Err() error                      { return nil }
func (redsyncLease) Downgrade(context.Context) error { return errors.ErrUnsupported }
