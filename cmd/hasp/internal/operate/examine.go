// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/people"
)

// lookLimit bounds what the servers are asked at once: one may hang.
const lookLimit = 2 * time.Second

// examination is one hasp doctor at work.
type examination struct {
	ctx      context.Context // a signal ends it
	l        *base.Locks
	second   func() (*store.Store, error) // opens the store once more
	servers  []store.Server
	cluster  bool // each of the servers has a part of the keys
	found    []doctor.Finding
	admitted []doctor.Finding // by server, with --admit
}

func (x *examination) say(l operator.Level, node, check, format string, args ...any) {
	x.found = append(x.found, doctor.Finding{Level: l, Node: node, Check: check, Text: fmt.Sprintf(format, args...)})
}

// measured is say of something that took so long.
func (x *examination) measured(took time.Duration, l operator.Level, check, format string, args ...any) {
	x.say(l, "", check, format, args...)
	x.found[len(x.found)-1].Took = people.Seconds(took)
}

// within returns the context of what may take so long.
func (x *examination) within(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(x.ctx, limit)
}

// all examines everything, and returns nil when nothing fails.
func (x *examination) all() *base.Exit {
	if end := x.find(); end != nil {
		return end
	}
	servers := x.servers
	if len(servers) == 0 {
		return x.whole()
	}
	votes, facts := x.ask()
	need, voting, classes := len(servers)/2+1, 0, map[driver.Class]int{}
	if x.cluster {
		need = len(servers)
	}
	for i, v := range votes {
		if err := errors.Join(facts[i].Err, v.Err); err != nil {
			classes[servers[i].Driver.Classify(err)]++
		} else if len(facts[i].Missing) > 0 { // it would vote, but not for this user
			classes[driver.ClassDenied]++
		} else if facts[i].Large != nil { // it would vote, but a renewal of many leases would not reach it
			classes[driver.ClassMisconfigured]++
		} else if v.Voting && v.Refuses == nil {
			voting++
		}
	}
	duplicates := x.duplicates(votes, facts)
	for i, s := range servers {
		if x.admitted != nil {
			x.found = append(x.found, x.admitted[i])
		}
		x.found = append(x.found, doctor.Judge(s.Name, facts[i], votes[i], doctor.Asked{
			MaxTTL: x.recorded(), Enough: voting >= need, Cluster: x.cluster, Replicas: x.l.Store.Replicas, Redisson: x.l.Store.Redisson,
			Command: func(statement string) string {
				if s.ByHand != nil {
					return s.ByHand(statement)
				}
				return x.l.URL.ByHand(i, statement)
			},
			Says: func(err error) string {
				return x.trouble("it", s.Name, &hasp.Error{Class: s.Driver.Classify(err), Err: err}).Message
			},
		})...)
		if duplicates[i] != "" {
			x.say(doctor.Fail, s.Name, "twice", "it is the same server as %s, which would have a vote for each name: name every server once", duplicates[i])
		}
	}
	x.state()
	ctx, cancel := x.within(lookLimit)
	x.besides(ctx)
	cancel()
	if len(servers) > 1 && !x.cluster {
		level := doctor.OK
		switch {
		case voting < need:
			level = doctor.Fail
		case voting < len(servers):
			level = doctor.Warn
		}
		x.say(level, "", "quorum", "%d of %d nodes vote, and it takes %d", voting, len(servers), need)
	}
	if voting < need {
		return x.silent(classes, len(servers)-need)
	}
	unfit := x.failed()
	if len(duplicates) == 0 {
		if end := x.try(); unfit == nil {
			return end
		}
	}
	return unfit
}

// recorded is the longest TTL of servers that keep a record; 0: they keep none.
func (x *examination) recorded() time.Duration {
	if x.l.Store.Redisson { // there it says what Redisson's watchdog does
		return 0
	}
	return x.l.Traits().MaxTTL
}

// find finds the servers, and returns nil when it did.
func (x *examination) find() *base.Exit {
	x.servers = x.l.Store.Servers
	if x.cluster = x.l.Store.Masters != nil; !x.cluster {
		return nil
	}
	ctx, cancel := x.within(lookLimit)
	defer cancel()
	var err error
	if x.servers, err = x.l.Store.Masters(ctx); err == nil && len(x.servers) == 0 {
		err = errors.New("the cluster names no masters")
	}
	return x.unusable(err)
}

// unusable is the end when the store cannot be examined; nil without an error.
func (x *examination) unusable(err error) *base.Exit {
	if err == nil {
		return nil
	}
	return x.ends("answers", "", x.trouble(x.store(), "", &hasp.Error{Class: x.l.Store.Classify(err), Err: err}))
}

func (x *examination) store() string { return fmt.Sprintf("the store %s", x.l.URL) }

// trouble is base.TroubleOf for the doctor's own reader.
func (x *examination) trouble(on, addr string, err error) *base.Exit {
	end := base.TroubleOf(on, addr, x.l.URL, err)
	end.Message = strings.TrimSuffix(end.Message, " Look: hasp doctor")
	return end
}

// ends is the end by a check that fails, and says the whole.
func (x *examination) ends(check, what string, end *base.Exit) *base.Exit {
	x.say(doctor.Fail, "", check, "%s%s", what, end.Message)
	end.Message = doctor.Beginning(end.Message) + " (see above)"
	return end
}

// whole examines a store that its engine knows as a whole.
func (x *examination) whole() *base.Exit {
	ctx, cancel := x.within(base.AskLimit)
	defer cancel()
	if examine := operator.Of(x.l.Store.Driver).Examine; examine != nil {
		findings, err := examine(ctx)
		x.take(findings)
		if end := x.unusable(err); end != nil {
			return end
		}
	}
	x.besides(ctx)
	unfit := x.failed()
	if end := x.try(); unfit == nil {
		return end
	}
	return unfit
}

// take takes over the findings of an engine.
func (x *examination) take(findings []operator.Finding) {
	for _, f := range findings {
		x.found = append(x.found, doctor.Finding{Level: f.Level, Check: f.Check, Text: driver.Printable(f.Text), FencesRepeat: f.FencesRepeat})
	}
}

// state says whether this machine can note how long servers were held back, where any are.
func (x *examination) state() {
	if x.recorded() == 0 {
		return
	}
	dir, err := store.StateDir()
	if err = cmp.Or(err, admission.Check(dir)); err != nil {
		x.say(doctor.Warn, "", "state", "how long a server is held back cannot be noted in the state directory: %v. Commands that end before the wait "+
			"is over never let it vote: name a directory that can be written with XDG_STATE_HOME", err)
	}
}

// besides looks at what the engine cannot know.
func (x *examination) besides(ctx context.Context) {
	if x.l.Store.Examine != nil {
		x.take(x.l.Store.Examine(ctx))
	}
}

// silent is the end of an examination of a store that grants nothing. classes counts
// the troubles of its servers by class; a class that more than spare of them have decides.
func (x *examination) silent(classes map[driver.Class]int, spare int) *base.Exit {
	e := &base.Exit{Code: base.ExitUnreachable, Verdict: "unreachable", Message: fmt.Sprintf("the store %s grants no locks now", x.l.URL)}
	if x.cluster {
		e.Message = fmt.Sprintf("the store %s grants no locks now for the keys of some of its masters", x.l.URL)
	}
	switch {
	case classes[driver.ClassDenied] > spare:
		e.Code, e.Verdict = base.ExitDenied, "denied"
	case classes[driver.ClassLogin] > spare:
		e.Code, e.Verdict = base.ExitDenied, "login"
	case classes[driver.ClassMisconfigured]+classes[driver.ClassImpossible] > spare:
		e.Code, e.Verdict = base.ExitConfig, "misconfigured"
	}
	return e
}

// failed is the end of an examination that found something wrong; nil otherwise.
func (x *examination) failed() *base.Exit {
	fails := 0
	for _, f := range x.found {
		if f.Level == doctor.Fail {
			fails++
		}
	}
	if fails == 0 {
		return nil
	}
	return &base.Exit{Code: base.ExitConfig, Verdict: "misconfigured",
		Message: fmt.Sprintf("the store %s is not fit for locks: %s above", x.l.URL, people.Count(fails, "check fails", "checks fail"))}
}

// errAgain: the server was restarted after the declaration, before its effect was seen.
var errAgain = errors.New("it is held back again: repeat --admit")

// admit declares on behalf of the operator that no client holds a lock, and reports what
// that changed.
func (x *examination) admit() error {
	if x.recorded() == 0 || len(x.l.Store.Servers) == 0 {
		return base.Usage("--admit is for servers that are held back after a restart, and this store has none: they are those of redlock:, and of redis: with max-ttl= in the URL")
	}
	base.Note("you declare that nobody holds a lock in %s. Servers that are held back vote now; if the declaration is wrong, there can be two holders", x.l.URL)
	before := x.votes(x.ctx)
	limited, cancel := x.within(lookLimit)
	err := x.l.Operator().Admit(limited)
	cancel()
	after := x.votes(x.ctx)
	for i, s := range x.l.Store.Servers {
		f := doctor.Finding{Level: doctor.OK, Node: s.Name, Check: "admit"}
		switch {
		case before[i].Voting:
			f.Text = "it voted already, and is unchanged"
		case after[i].Voting:
			f.Text = "admitted, as you declared"
		default:
			f.Level, f.Text = doctor.Warn, "not admitted: "+doctor.Said(cmp.Or(after[i].Err, err, errAgain))
		}
		x.admitted = append(x.admitted, f)
	}
	return nil
}
