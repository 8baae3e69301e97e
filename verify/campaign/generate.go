// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/verify/engines"
)

// ms is a moment of a schedule in milliseconds: seeds give whole ones, which are easier to read.
type ms int

func msOf(d time.Duration) ms { return ms(d.Milliseconds()) }

// faultsLast is for how long faults are injected.
const faultsLast ms = 4500

// afterRecoveryLasts is how long the actions of AfterRecovery last.
const afterRecoveryLasts = time.Second

// guarded marks a master that is configured to stop soon after it lost its replica.
const guarded = "with min-replicas-to-write"

// refusals are the errors with which a server can refuse to write, by their first word.
var refusals = []string{"OOM", "NOREPLICAS", "MISCONF", "READONLY"}

// incident is one kind of fault of a schedule. It begins at a moment, and lasts for a time between two, longer by what beyond says; of
// 0: it has no end. where reserves what it strikes. Its amount is up to by milliseconds. make is in place of all that.
type incident struct {
	kind        Kind
	where       func(g *generator, from, to ms) (on []int, client int, ok bool)
	least, most ms
	beyond      func(*Schedule) ms
	by          ms
	make        func(g *generator, k Kind, at ms) bool
}

// add adds the incident to a schedule, from a moment on. It reports false when another fault is in its way.
func (i incident) add(g *generator, at ms) bool {
	if i.make != nil {
		return i.make(g, i.kind, at)
	}
	to := at + 1
	if i.most > 0 {
		to = at + g.between(i.least, i.most)
	}
	if i.beyond != nil {
		to += i.beyond(g.s)
	}
	on, client, ok := i.where(g, at, to)
	if !ok {
		return false
	}
	var by time.Duration
	if i.by > 0 {
		by = time.Duration(g.between(20, i.by)) * time.Millisecond
	}
	if g.act(at, i.kind, Begin, on, client, by); i.most > 0 {
		g.act(to, i.kind, End, on, client, 0)
	}
	return true
}

func special(k Kind, draw func(*generator, Kind, ms) bool) incident {
	return incident{kind: k, make: draw}
}

// The faults of many stores. A fault of a server strikes a server that is chosen when the fault begins. There is one such fault at a time, so that
// a majority is left.
var (
	processFaults = []incident{
		{kind: ClientStop, where: process, most: 300, beyond: func(s *Schedule) ms { return msOf(s.MaxTTL) * 11 / 10 }},
		{kind: ClientKill, where: process, least: 50, most: 1500},
	}
	linkFaults = []incident{
		{kind: Partition, where: someLinks, least: 300, most: 2400},
		{kind: LoseRequests, where: someLinks, least: 300, most: 2400},
		{kind: LoseReplies, where: someLinks, least: 300, most: 2400},
	}
	slowLink   = incident{kind: Delay, where: someLinks, least: 300, most: 2400, by: 300}
	resetLinks = incident{kind: ResetLinks, where: anyLinks}
	cutAll     = incident{kind: CutAll, where: allLinks, least: 100, most: 2400}
)

// catalogue lists every kind of fault of Redlock once.
var catalogue = slices.Concat([]incident{
	special(RestartEmpty, restart(KeepNothing)),
	special(RestartRDB, restart(KeepNothing)),
	special(RestartTorn, restart(KeepEverySec)),
	special(RestartAOF, restart(KeepAlways)),
	special(AllEmpty, (*generator).allEmpty),
	{kind: Flush, where: aNode},
	{kind: FlushHeldBack, where: aNode, least: 200, most: 2000},
	special(Delete, (*generator).delete),
	{kind: Evict, where: aNode, least: 100, most: 500},
	special(Promote, restart(KeepNothing)),
	special(ClockForward, (*generator).step),
	special(ClockBack, (*generator).step),
	special(ClockHeldBack, (*generator).step),
	{kind: StopNode, where: aNode, least: 100, most: 2400},
	special(RefuseWrites, (*generator).refuseWrites),
}, linkFaults, []incident{
	slowLink,
	{kind: Duplicate, where: someLinks, least: 300, most: 2400, by: 2500},
	{kind: Late, where: someLinks, least: 300, most: 2400, by: 2500},
	resetLinks,
}, processFaults)

// loneCatalogue lists the kinds of fault of one server.
var loneCatalogue = slices.Concat(
	slices.DeleteFunc(slices.Clone(catalogue), func(i incident) bool { return i.kind == AllEmpty }),
	[]incident{special(Split, (*generator).splitMaster), cutAll})

// engineCatalogue lists the kinds of fault of another engine.
func engineCatalogue(k engines.Kind) (all []incident) {
	replicated := slices.Contains(engines.Replicated, k)
	last := ms(2000)
	if replicated {
		last = 5000 // so that most are replaced meanwhile
	}
	linked := k != engines.SQLite // which has no servers, nor links
	for _, those := range []struct {
		occur     bool
		incidents []incident
	}{
		{true, append(slices.Clone(processFaults), incident{kind: Break, where: nowhere})},
		{linked, append(slices.Clone(linkFaults), incident{kind: Hold, where: someLinks, least: 300, most: 2400}, slowLink, resetLinks, cutAll)},
		{linked && k.Servers() == 1, []incident{
			{kind: RestartKept, where: aServer, least: 100, most: 900}, {kind: StopNode, where: aServer, least: 100, most: 2400}}},
		{linked && k.Servers() > 1, []incident{
			{kind: KillLeader, where: aServer, least: 100, most: last}, {kind: KillFollower, where: aServer, least: 100, most: 2000},
			{kind: StopLeader, where: aServer, least: 100, most: last + 400}, {kind: StopFollower, where: aServer, least: 100, most: 2400}}},
		{replicated, []incident{
			special(KillLagging, (*generator).killLagging), {kind: CutMaster, where: oneSide, least: 1500, most: 6000}, {kind: Switch, where: aServer}}},
		{k.IsCluster(), []incident{{kind: Reshard, where: aServer}}},
		{k == engines.Etcd3, []incident{
			{kind: CutLeader, where: aServer, least: 100, most: 2400}, {kind: CutFollower, where: aServer, least: 100, most: 2400}}},
		{k == engines.ZooKeeper || k == engines.ZooKeeper3, []incident{
			{kind: Expire, where: itsLinks, least: 600, most: 1500, beyond: func(*Schedule) ms { return msOf(engines.Session) }}}},
		{k == engines.Postgres || k == engines.MariaDB, []incident{{kind: Terminate, where: nowhere}}},
		{k == engines.Etcd || k == engines.Etcd3, []incident{{kind: Revoke, where: nowhere}}},
	} {
		if those.occur {
			all = append(all, those.incidents...)
		}
	}
	return all
}

func catalogueOf(s Store) []incident {
	switch s {
	case Redlock:
		return catalogue
	case Redis, RedisNode:
		return loneCatalogue
	}
	return engineCatalogue(s)
}

// catalogue lists the kinds of fault that a schedule may have.
func (s *Schedule) catalogue() []incident {
	if s.Agent != "" {
		return agentCatalogue(s.Store)
	}
	return catalogueOf(s.Store)
}

// Kinds returns the kinds of fault that occur, in the order of the catalogue.
func (s *Schedule) Kinds() (kinds []Kind) {
	for _, c := range s.catalogue() {
		if slices.ContainsFunc(s.Actions, func(a Action) bool { return a.Kind == c.kind }) {
			kinds = append(kinds, c.kind)
		}
	}
	return kinds
}

// generator makes a schedule.
type generator struct {
	*rand.Rand
	s      *Schedule
	on     int            // how many nodes there are
	busy   [nodes]spans   // when a node already has another fault
	taken  [clients]spans // when a client's process has one
	bad    [clients]spans // when its links have one
	agents [clients]spans // when the agent that is called after it has one
	reach  [clients][]int // the nodes that it is not permanently cut off from
	pivot  int            // the node that must vote for every grant; -1: none
	fixed  [nodes]bool    // its persistence is already chosen
	fakes  int            // nodes with clocks that are stepped
}

func newGenerator(seed, other uint64, of Store) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, other)), s: &Schedule{Seed: seed, Store: of}, pivot: -1}
	g.on = g.s.on()
	g.s.MaxTTL = one(g, time.Second, 1500*time.Millisecond, 2*time.Second)
	for c := range g.reach {
		for n := range g.on {
			g.reach[c] = append(g.reach[c], n)
		}
	}
	return g
}

// Generate returns the schedule of a store and a seed, always the same. Over successive seeds every kind of fault comes first in turn.
func Generate(of Store, seed uint64) *Schedule {
	switch of {
	case Redlock:
		return generateRedlock(seed)
	case Redis, RedisNode:
		return generateRedis(of, seed)
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(of)) // a hash refuses nothing
	g := newGenerator(seed, name.Sum64(), of)
	if slices.Contains(engines.Replicated, of) && of != engines.SentinelRecord {
		g.s.MaxTTL, g.s.Longest = one(g, 3*time.Second, 6*time.Second), 6*time.Second // most outlive a failover
	}
	g.holds()
	g.fill()
	return g.s
}

func generateRedlock(seed uint64) *Schedule {
	g := newGenerator(seed, 0x6861737063616d70, Redlock)
	for i := range g.s.Skew {
		g.s.Skew[i] = one(g, 0, 0, 3*time.Second, -time.Second, -10*time.Second, -time.Hour)
	}
	g.connections()
	g.split()
	g.fill()
	if !slices.ContainsFunc(g.s.Actions, Action.forgets) {
		g.s.AfterRecovery = nil
	}
	return g.s
}

func generateRedis(of Store, seed uint64) *Schedule {
	g := newGenerator(seed, 0x6861737072656469, of)
	g.connections()
	g.holds()
	g.fill()
	g.s.Polls = of == Redis && g.IntN(2) == 0
	return g.s
}

// connections chooses how clients talk to Redis, and what its nodes write to their disks.
func (g *generator) connections() {
	g.s.Shared, g.s.Strict = g.IntN(2) == 0, g.IntN(2) == 0
	for i := range g.on {
		g.s.Keep[i] = one(g, KeepNothing, KeepNothing, KeepEverySec, KeepAlways)
	}
}

// holds chooses how long clients hold, and wait for, a key.
func (g *generator) holds() { g.s.Long, g.s.Hasty = one(g, 3, 12), g.IntN(3) == 0 }

// fill draws incidents from the catalogue. The seed determines the first, so that over successive seeds each comes first in turn.
func (g *generator) fill() {
	from := g.s.catalogue()
	g.add(from[g.s.Seed%uint64(len(from))])
	for range one(g, 0, 1, 1, 2, 2, 3) {
		g.add(one(g, from...))
	}
	byTime(g.s.Actions)
}

func byTime(all []Action) {
	slices.SortStableFunc(all, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
}

// split cuts half of the clients off from two nodes, and the others from two others, in half of the schedules: then each majority
// has just enough votes, and both need the vote of the one common node.
func (g *generator) split() {
	on := g.Perm(nodes)
	g.pivot, g.s.Long = on[0], 3
	if g.IntN(2) == 0 {
		g.pivot, g.s.Long = -1, 12
	}
	for c := range clients {
		if g.pivot < 0 {
			g.reach[c] = on
			continue
		}
		away := slices.Clone(on[1+c%2*2:][:2])
		slices.Sort(away)
		g.reach[c] = slices.DeleteFunc(slices.Clone(on), func(n int) bool { return slices.Contains(away, n) })
		g.span(Partition, 0, faultsLast, away, c, 0)
		g.s.AfterRecovery = append(g.s.AfterRecovery,
			Action{Kind: Partition, Part: Begin, Nodes: away, Client: c},
			Action{At: afterRecoveryLasts, Kind: Partition, Part: End, Nodes: away, Client: c})
	}
	byTime(g.s.AfterRecovery)
}

// add adds an incident at a moment when nothing is in its way, if it finds one.
func (g *generator) add(i incident) {
	for range 20 {
		if i.add(g, g.between(500, faultsLast-2500)) {
			return
		}
	}
}

func (g *generator) between(from, to ms) ms { return from + ms(g.IntN(int(to-from))) }

// one draws one of some values.
func one[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// some returns n nodes in order.
func (g *generator) some(n int) []int {
	on := g.Perm(g.on)[:min(n, g.on)]
	slices.Sort(on)
	return on
}

func (g *generator) act(at ms, k Kind, p Part, on []int, client int, by time.Duration) {
	a := Action{At: time.Duration(at) * time.Millisecond, Kind: k, Part: p, Nodes: on, Client: client, By: by}
	g.s.Actions = append(g.s.Actions, a)
}

// span adds the beginning and the end of a fault.
func (g *generator) span(k Kind, from, to ms, on []int, client int, by time.Duration) bool {
	g.act(from, k, Begin, on, client, by)
	g.act(to, k, End, on, client, 0)
	return true
}

// how says of the last n actions how they are done.
func (g *generator) how(n int, how string) {
	for i := range n {
		g.s.Actions[len(g.s.Actions)-1-i].How = how
	}
}

// spans are times in milliseconds, from and to.
type spans [][2]ms

// overlap reports whether a span is not free. Spans that touch overlap, because the
// end of one and the beginning of the other would have no order.
func (s spans) overlap(from, to ms) bool {
	return slices.ContainsFunc(s, func(b [2]ms) bool { return from <= b[1] && b[0] <= to })
}

// reserve reserves a span of some, unless one of them is not free.
func reserve(of []spans, from, to ms, which ...int) bool {
	if slices.ContainsFunc(which, func(i int) bool { return of[i].overlap(from, to) }) {
		return false
	}
	for _, i := range which {
		of[i] = append(of[i], [2]ms{from, to})
	}
	return true
}

// everyClient are all clients.
var everyClient = []int{0, 1, 2, 3}

// aNode is a node without another fault in a span.
func aNode(g *generator, from, to ms) (on []int, client int, ok bool) {
	n := g.IntN(g.on)
	if g.pivot >= 0 && g.IntN(3) > 0 {
		n = g.pivot
	}
	return []int{n}, -1, reserve(g.busy[:], from, to, n)
}

func aServer(g *generator, from, to ms) ([]int, int, bool) {
	return nil, -1, reserve(g.busy[:], from, to, 0)
}

// nowhere is of what is done to all servers.
func nowhere(*generator, ms, ms) ([]int, int, bool) { return nil, -1, true }

// process is that of a client.
func process(g *generator, from, to ms) ([]int, int, bool) {
	c := g.IntN(clients)
	return nil, c, reserve(g.taken[:], from, to, c)
}

// itsLinks are a client's links to all nodes that it reaches, anyLinks links to any nodes, and someLinks to some of the nodes that it reaches.
func itsLinks(g *generator, from, to ms) ([]int, int, bool) {
	c := g.IntN(clients)
	return slices.Clone(g.reach[c]), c, reserve(g.bad[:], from, to, c)
}

func anyLinks(g *generator, from, to ms) (on []int, c int, ok bool) {
	if _, c, ok = itsLinks(g, from, to); ok {
		on = g.some(1 + g.IntN(g.on))
	}
	return on, c, ok
}

func someLinks(g *generator, from, to ms) (on []int, c int, ok bool) {
	if on, c, ok = itsLinks(g, from, to); ok {
		g.Shuffle(len(on), func(i, j int) { on[i], on[j] = on[j], on[i] })
		on = on[:1+g.IntN(len(on))]
		slices.Sort(on)
	}
	return on, c, ok
}

// allLinks are those of all clients to the server, and oneSide those between the master with every other client and all others.
func allLinks(g *generator, from, to ms) ([]int, int, bool) {
	return []int{0}, -1, reserve(g.bad[:], from, to, everyClient...)
}

func oneSide(g *generator, from, to ms) ([]int, int, bool) {
	return nil, -1, !g.busy[0].overlap(from, to) && reserve(g.bad[:], from, to, everyClient...) && reserve(g.busy[:], from, to, 0)
}

func restart(keep Persistence) func(*generator, Kind, ms) bool {
	return func(g *generator, k Kind, at ms) bool {
		from, to := at, at+g.between(50, 900)
		if k == RestartRDB || k == Promote {
			from -= g.between(200, 450) // for the snapshot, or the replica
		}
		on, _, ok := aNode(g, from, to)
		if !ok {
			return false
		}
		n := on[0]
		if g.fixed[n] && g.s.Keep[n] != keep {
			return false
		}
		g.fixed[n], g.s.Keep[n] = true, keep
		if from < at {
			g.act(from, k, Prepare, on, -1, 0)
		}
		return g.span(k, at, to, on, -1, 0)
	}
}

func (g *generator) allEmpty(k Kind, at ms) bool {
	gap := msOf(g.s.MaxTTL) / nodes
	if !reserve(g.busy[:], at, at+nodes*gap, 0, 1, 2, 3, 4) {
		return false
	}
	for i, n := range g.Perm(nodes) {
		from := at + ms(i)*gap
		g.span(k, from, from+g.between(10, gap-10), []int{n}, -1, 0)
	}
	return true
}

func (g *generator) delete(k Kind, at ms) bool {
	on := g.some(1 + g.IntN(3))
	ok := reserve(g.busy[:], at, at+1, on...)
	if ok {
		g.act(at, k, Begin, on, -1, 0)
	}
	return ok
}

// step does not step the clock back at the end. It steps the clocks of two nodes at
// most, so that a majority's fences stay close enough to each other.
func (g *generator) step(k Kind, at ms) bool {
	if g.fakes == 2 {
		return false
	}
	on, _, ok := aNode(g, at, faultsLast)
	if !ok {
		return false
	}
	g.fakes++
	if k == ClockHeldBack {
		up := at + g.between(50, 500)
		g.act(at, k, Begin, on, -1, 0)
		g.act(up, k, End, on, -1, one(g, 2*time.Minute, time.Hour))
		return true
	}
	by := one(g, time.Second, 2500*time.Millisecond, time.Minute, time.Hour)
	if k == ClockBack {
		by = -by
		if g.on == 1 { // with no other node to decide, every client would wait for as long
			by = max(by, -2500*time.Millisecond)
		}
	}
	g.act(at, k, Begin, on, -1, by)
	return true
}

func (g *generator) refuseWrites(k Kind, at ms) bool {
	ok := incident{kind: k, where: aNode, least: 300, most: 2400}.add(g, at)
	if ok {
		g.how(2, one(g, refusals...))
	}
	return ok
}

// splitMaster promotes a replica while some clients go on using the old master; with a
// node record until the replica has voted for a while.
func (g *generator) splitMaster(k Kind, at ms) bool {
	from, to := at-g.between(200, 450), at+g.between(1000, 2500)
	if g.s.records() {
		to += msOf(admission.Wait(g.s.MaxTTL))
	}
	on, _, ok := aNode(g, from, to)
	if !ok {
		return false
	}
	g.act(from, k, Prepare, on, -1, 0)
	g.span(k, at, to, on, -1, 0)
	if g.IntN(2) == 0 {
		g.how(3, guarded)
	}
	return true
}

// killLagging kills a master before its replicas have what it granted last.
func (g *generator) killLagging(k Kind, at ms) bool {
	lag := g.between(200, 2000)
	to := at + lag + g.between(100, 5000)
	return reserve(g.busy[:], at, to, 0) && g.span(k, at, to, nil, -1, time.Duration(lag)*time.Millisecond)
}
