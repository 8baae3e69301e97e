// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"slices"
	"time"
)

// scene is a kind of schedule: it adds faults to a plan.
type scene struct {
	name   string
	weight int // how often it is chosen
	write  func(w *writer)
}

// scenes are the kinds of schedule. Those from "clock forward" on break an
// assumption; a plan finds out for itself.
var scenes = []scene{
	{"calm", 1, func(*writer) {}},
	{"messages", 3, func(w *writer) { w.storm() }},
	{"partitions", 2, func(w *writer) { w.some(6, w.cut) }},
	{"restarts", 4, func(w *writer) { w.some(5, w.restart) }},
	{"rolling restart", 1, func(w *writer) { w.rolling() }},
	{"all at once", 1, func(w *writer) { w.together(w.p.Nodes) }},
	{"stops", 2, func(w *writer) { w.some(6, w.stop) }},
	{"clocks within bounds", 3, func(w *writer) { w.slew(); w.some(3, w.stepBack); w.some(2, w.stepLittle) }},
	{"clients", 3, func(w *writer) { w.some(5, w.pause); w.some(2, w.crash) }},
	{"mixed", 8, func(w *writer) { w.mixed() }},
	{"clock forward", 3, func(w *writer) { w.some(4, w.stepForward); w.some(3, w.pause); w.some(2, w.cut) }},
	{"clocks forward together", 1, func(w *writer) { w.allForward(); w.allForward() }},
	{"clock fast", 1, func(w *writer) { w.fast(); w.some(3, w.pause); w.some(3, w.cut) }},
	{"forward and restarts", 2, func(w *writer) { w.mixed(); w.some(3, w.stepForward) }},
	{"wrong clocks that forget", 2, func(w *writer) { w.far(); w.some(5, w.restart) }},
	{"clocks set back that forget", 1, func(w *writer) { w.setBack() }},
	{"everything", 3, func(w *writer) { w.mixed(); w.far(); w.some(3, w.stepForward); w.fast() }},
}

// Scenes are the names of the kinds of schedule.
func Scenes() []string {
	names := make([]string, len(scenes))
	for i, s := range scenes {
		names[i] = s.name
	}
	return names
}

// NewPlan writes the schedule of a seed. An empty scene: the seed chooses.
func NewPlan(seed uint64, name string) *Plan {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, 1))}
	s := w.choose(name)
	w.p = &Plan{Seed: seed, Scene: s.name, Nodes: 3, MaxTTL: 2 * time.Second}
	p := w.p
	if w.one(4) {
		p.Nodes = 5
	}
	p.Word = !w.one(6)
	p.Eager = w.one(2)
	for range 2 + w.IntN(3) {
		p.TTLs = append(p.TTLs, w.between(p.MaxTTL/2, p.MaxTTL))
		p.Skews = append(p.Skews, w.skew())
	}
	for range p.Nodes {
		p.Offsets = append(p.Offsets, w.between(-time.Second, time.Second))
		p.Rates = append(p.Rates, 0)
	}
	p.Weather = Weather{Slow: 0.01, SlowBy: 30 * time.Millisecond}
	w.length = w.between(6*time.Second, 16*time.Second)
	if w.one(3) { // long enough for nodes to vote again
		w.length += 16 * time.Second
	}
	p.Over = w.length
	s.write(w)
	if w.one(3) {
		w.storm()
	}
	p.judge()
	return p
}

// writer writes a plan.
type writer struct {
	*rand.Rand
	p      *Plan
	length time.Duration
}

// choose draws a scene, also when there is one of that name: a seed is one plan, whether
// its scene is named or not.
func (w *writer) choose(name string) scene {
	total := 0
	for _, s := range scenes {
		total += s.weight
	}
	n := w.IntN(total)
	if i := slices.IndexFunc(scenes, func(s scene) bool { return s.name == name }); i >= 0 {
		return scenes[i]
	}
	for _, s := range scenes {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	panic("unreachable")
}

// one is true once in n times.
func (w *writer) one(n int) bool { return w.IntN(n) == 0 }

func (w *writer) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.Int64N(int64(b-a)+1))
}

// some does something up to n times, at least once.
func (w *writer) some(n int, do func()) {
	for range 1 + w.IntN(n) {
		do()
	}
}

func (w *writer) add(f Fault) {
	if f.At == 0 {
		f.At = w.between(0, w.length-time.Second)
	}
	w.p.Faults = append(w.p.Faults, f)
}

func (w *writer) node() int   { return w.IntN(w.p.Nodes) }
func (w *writer) client() int { return w.IntN(len(w.p.TTLs)) }

// skew is how wrong a client's wall clock is.
func (w *writer) skew() time.Duration {
	switch {
	case w.one(2):
		return w.between(-20*time.Millisecond, 20*time.Millisecond)
	case w.one(6):
		return w.between(-time.Hour, time.Hour)
	}
	return w.between(-3*time.Second, 3*time.Second)
}

// storm makes the network bad.
func (w *writer) storm() {
	w.p.Weather = Weather{
		Slow: 0.2 * w.Float64(), SlowBy: w.between(10*time.Millisecond, 300*time.Millisecond),
		Lost: 0.1 * w.Float64(), Reset: 0.05 * w.Float64(),
		Twice: 0.2 * w.Float64(), Late: 0.05 * w.Float64(),
		LateBy: w.between(50*time.Millisecond, 5*time.Second),
	}
	if w.one(8) {
		w.p.Weather.LateBy = 20 * time.Second
	}
}

func (w *writer) cut() {
	kind := CutOut
	if w.one(2) {
		kind = CutIn
	}
	f := Fault{At: w.between(0, w.length-time.Second), Kind: kind, Client: w.client(), For: w.between(50*time.Millisecond, 5*time.Second)}
	for range 1 + w.IntN(w.p.Nodes) {
		f.Node = w.node()
		w.add(f)
		if w.one(2) { // both ways
			f.Kind = CutOut + CutIn - f.Kind
			w.add(f)
		}
	}
}

// restart kills a node, or flushes it, in one of the ways.
func (w *writer) restart() { w.restartAt(w.node(), w.between(0, w.length-time.Second)) }

func (w *writer) restartAt(n int, at time.Duration) {
	f := Fault{At: at, Kind: []FaultKind{RestartEmpty, RestartSaved, RestartSaved, RestartKept, Flush}[w.IntN(5)], Node: n}
	if f.Kind == RestartSaved {
		age := w.between(0, time.Second) // AOF everysec
		if w.one(2) {
			age = w.between(0, at) // RDB
		}
		w.add(Fault{At: max(at-age, 1), Kind: Save, Node: n})
	}
	if f.Kind != Flush {
		f.For = w.between(time.Millisecond, 800*time.Millisecond)
		if w.one(4) { // the host boots, and its clock is set
			f.By = w.between(-2*time.Second, 2*time.Second)
		}
	}
	w.add(f)
	if w.one(4) { // once more while it is held back
		again := at + f.For + w.between(0, 4*time.Second)
		if again < w.length-time.Second {
			w.restartAt(n, again)
		}
	}
}

// rolling restarts one node after the other.
func (w *writer) rolling() {
	at := w.between(0, time.Second)
	step := w.length / time.Duration(w.p.Nodes+1)
	for n := range w.p.Nodes {
		w.restartAt(n, at)
		at += step
	}
}

// together restarts n nodes at nearly one moment.
func (w *writer) together(n int) {
	at := w.between(0, w.length-2*time.Second)
	for _, n := range w.Perm(w.p.Nodes)[:n] {
		w.restartAt(n, at+w.between(0, 100*time.Millisecond))
	}
}

func (w *writer) stop() {
	w.add(Fault{Kind: Stop, Node: w.node(), For: w.between(10*time.Millisecond, 4*time.Second)})
}

// slew gives every node's clock a rate that leases bear.
func (w *writer) slew() {
	for n := range w.p.Rates {
		w.p.Rates[n] = 0.01*w.Float64() - 0.005
	}
	w.add(Fault{Kind: Rate, Node: w.node(), Rate: 0.01*w.Float64() - 0.005})
}

func (w *writer) stepBack() {
	w.add(Fault{Kind: Step, Node: w.node(), By: -w.between(time.Millisecond, 2*time.Second)})
}

func (w *writer) stepLittle() {
	w.add(Fault{Kind: Step, Node: w.node(), By: time.Millisecond})
}

func (w *writer) stepForward() {
	w.add(Fault{Kind: Step, Node: w.node(), By: w.between(50*time.Millisecond, 4*time.Second)})
}

// allForward steps most nodes' clocks at nearly one moment.
func (w *writer) allForward() {
	at := w.between(0, w.length-time.Second)
	for _, n := range w.Perm(w.p.Nodes)[:w.p.Nodes/2+1] {
		w.add(Fault{At: at + w.between(0, 10*time.Millisecond), Kind: Step, Node: n, By: w.between(500*time.Millisecond, 4*time.Second)})
	}
}

// setBack has all nodes forget, and come back with clocks that are right: before
// that they were ahead.
func (w *writer) setBack() {
	w.p.Over += 16 * time.Second
	at := w.between(2*time.Second, w.length-2*time.Second)
	for n := range w.p.Offsets {
		w.p.Offsets[n] = w.between(time.Minute, 2*time.Minute)
		w.add(Fault{At: at + w.between(0, 100*time.Millisecond), Kind: RestartEmpty, Node: n, For: 10 * time.Millisecond, By: -w.p.Offsets[n]})
	}
}

func (w *writer) fast() {
	w.p.Rates[w.node()] = 0.02 + 0.2*w.Float64()
}

// far sets clocks wrong by more than fences bear after a node forgot.
func (w *writer) far() {
	for n := range w.p.Offsets {
		if w.one(2) {
			w.p.Offsets[n] = w.between(-2*time.Minute, 2*time.Minute)
		}
	}
	if w.one(2) {
		w.add(Fault{Kind: Step, Node: w.node(), By: -w.between(time.Second, time.Hour)})
	}
}

func (w *writer) pause() {
	w.add(Fault{Kind: Pause, Client: w.client(), For: w.between(10*time.Millisecond, 6*time.Second)})
}

func (w *writer) crash() {
	w.add(Fault{Kind: Crash, Client: w.client(), For: w.between(10*time.Millisecond, 3*time.Second)})
}

// mixed is much at once that all leases and fences bear.
func (w *writer) mixed() {
	w.storm()
	for _, do := range []func(){w.cut, w.restart, w.stop, w.stepBack, w.pause, w.crash} {
		if !w.one(3) {
			w.some(3, do)
		}
	}
	if w.one(2) {
		w.slew()
	}
	if w.one(4) {
		w.together(1 + w.IntN(w.p.Nodes))
	}
}
