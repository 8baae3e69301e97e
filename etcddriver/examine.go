// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver/operator"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// nearlyFull is the part of its space from which on a member is worth a warning, in percent.
const nearlyFull = 80

// memberLimit bounds what one member is asked: it may be down, or hang.
const memberLimit = 2 * time.Second

// examination is one Examine at work.
type examination struct {
	d      *Driver
	states []*clientv3.StatusResponse // by endpoint; nil where it does not answer
	large  []*operator.Finding        // by endpoint
	found  []operator.Finding
}

func (x *examination) say(level operator.Level, check, format string, args ...any) {
	x.found = append(x.found, operator.Finding{Level: level, Check: check, Text: fmt.Sprintf(format, args...)})
}

// Examine is of [operator.Operations]: what each member says of itself, the alarms, and the
// shortest lease that the servers grant, for which it takes one without a key and revokes it.
func (d *Driver) Examine(ctx context.Context) ([]operator.Finding, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	endpoints := d.client.Endpoints()
	x := &examination{d: d, states: make([]*clientv3.StatusResponse, len(endpoints)), large: make([]*operator.Finding, len(endpoints))}
	errs := make([]error, len(endpoints))
	var asked sync.WaitGroup
	for i, endpoint := range endpoints {
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, memberLimit) // the client goes on trying
			defer cancel()
			if x.states[i], errs[i] = d.client.Status(ctx, endpoint); errs[i] == nil {
				x.large[i] = d.askLarge(ctx, endpoint)
			}
		})
	}
	asked.Wait()
	answers := 0
	for i, endpoint := range endpoints {
		if errs[i] != nil {
			x.states[i] = nil
			why := errs[i].Error()
			if errors.Is(errs[i], context.DeadlineExceeded) {
				why = fmt.Sprintf("no status within %v", memberLimit)
			}
			x.say(operator.LevelWarn, "member", "%s does not answer: %s", endpoint, why)
			continue
		}
		answers++
		x.member(endpoint, x.states[i])
	}
	if answers == 0 {
		return x.found, errors.Join(errs...)
	}
	x.vanish(answers)
	x.members(ctx)
	x.alarms(ctx)
	x.election(ctx)
	return x.found, nil
}

// member is about one member, by what it says of itself.
func (x *examination) member(endpoint string, s *clientv3.StatusResponse) {
	switch {
	case s.Leader == 0:
		x.say(operator.LevelWarn, "member", "%s has no leader: it is cut off from the others, or too few of them run", endpoint)
	case s.IsLearner:
		x.say(operator.LevelWarn, "member", "%s is a learner, which answers no request of a lock: promote it (etcdctl member promote), or leave it out of the endpoints", endpoint)
	case s.Leader == s.Header.MemberId:
		x.say(operator.LevelOK, "member", "%s is etcd %s, and the leader", endpoint, s.Version)
	default:
		x.say(operator.LevelOK, "member", "%s is etcd %s, and has a leader", endpoint, s.Version)
	}
	if revokesRenewed(s.Version) {
		x.say(operator.LevelWarn, "version", "%s: etcd %s may revoke leases that were renewed, after its leader was stalled: take 3.4.31, 3.5.13 or later", endpoint, s.Version)
	}
	if quota := s.DbSizeQuota; quota > 0 && s.DbSize > quota/100*nearlyFull { // older servers do not say what it is
		x.say(operator.LevelWarn, "space", "%s has used %d of %d MiB: when they are full, nothing is granted. Compact and defragment it, or raise --quota-backend-bytes",
			endpoint, s.DbSize>>20, quota>>20)
	}
}

// askLarge asks a member for a key with a long name, on a connection of its own.
func (d *Driver) askLarge(ctx context.Context, endpoint string) *operator.Finding {
	cc, err := d.client.Dial(endpoint)
	if err != nil {
		return nil
	}
	defer cc.Close()
	return operator.AskLarge(ctx, func(ctx context.Context, text string) error {
		_, err := etcdserverpb.NewKVClient(cc).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(d.prefix + text), Serializable: true}, grpc.WaitForReady(true))
		return err
	})
}

// vanish is about the members that answer, but no large request.
func (x *examination) vanish(answers int) {
	var bad []operator.Finding
	for i, f := range x.large {
		if f != nil {
			bad = append(bad, operator.Finding{Level: operator.LevelWarn, Check: f.Check, Text: x.d.client.Endpoints()[i] + ": " + f.Text})
		}
	}
	for i := range bad {
		if len(bad) == answers {
			bad[i].Level = operator.LevelFail
		}
	}
	x.found = append(x.found, bad...)
}

// members is about the cluster: whether it is one, and how many of it may fail.
func (x *examination) members(ctx context.Context) {
	clusters, names := map[uint64]string{}, map[uint64]bool{}
	for i, s := range x.states {
		if s != nil {
			clusters[s.Header.ClusterId], names[s.Header.MemberId] = x.d.client.Endpoints()[i], true
		}
	}
	if len(clusters) > 1 {
		x.say(operator.LevelFail, "cluster", "the endpoints belong to %d clusters, as %s: each grants a key, whoever holds it in another. Name the members of one", len(clusters),
			strings.Join(slices.Sorted(maps.Values(clusters)), " and "))
		return
	}
	list, err := x.d.client.MemberList(ctx)
	if err != nil {
		x.say(operator.LevelWarn, "cluster", "its members are unknown: %v", err)
		return
	}
	voters := 0
	for _, m := range list.Members {
		if !m.IsLearner {
			voters++
		}
	}
	spare := (voters - 1) / 2
	switch {
	case voters == 1:
		x.say(operator.LevelOK, "cluster", "it has one member: while that is down, nothing is granted or renewed")
	case len(x.states) < voters:
		x.say(operator.LevelWarn, "cluster", "of its %d members, %d may fail, but the endpoints are only %d: if those fail, nothing is granted. Name all of them", voters, spare, len(x.states))
	case len(names) < voters:
		x.say(operator.LevelWarn, "cluster", "%d of its %d members answer, and it takes %d", len(names), voters, voters-spare)
	default:
		x.say(operator.LevelOK, "cluster", "its %d members answer, and %d of them may fail", voters, spare)
	}
}

// alarms has those that stop grants. Members repeat them in their state, which is for every user.
func (x *examination) alarms(ctx context.Context) {
	var raised []string
	for _, s := range x.states {
		if s != nil {
			raised = append(raised, s.Errors...)
		}
	}
	if list, err := x.d.client.AlarmList(ctx); err == nil { // else it is for administrators only
		for _, a := range list.Alarms {
			raised = append(raised, a.Alarm.String())
		}
	}
	all := strings.Join(raised, " ")
	if strings.Contains(all, etcdserverpb.AlarmType_NOSPACE.String()) {
		x.say(operator.LevelFail, "space", "etcd is out of space (NOSPACE), and grants nothing: compact and defragment it, then etcdctl alarm disarm")
	}
	if strings.Contains(all, etcdserverpb.AlarmType_CORRUPT.String()) {
		x.found = append(x.found, operator.Finding{Level: operator.LevelFail, Check: "data", FencesRepeat: true, Text: "the data of a member is corrupt (CORRUPT), and nothing is " +
			"granted: remove that member, add it anew with an empty directory, then etcdctl alarm disarm"})
	}
}

// election compares the shortest lease that the servers grant with the shortest that this driver promises to keep.
func (x *examination) election(ctx context.Context) {
	got, err := x.d.client.Grant(ctx, 1)
	if err != nil {
		return // the trial lock says why
	}
	_, _ = x.d.client.Revoke(ctx, got.ID) // else it expires
	switch least := time.Duration(got.TTL) * time.Second; {
	case least > x.d.minTTL:
		x.say(operator.LevelWarn, "election", "its election time-out (some %v) makes every lease last for %v at least: with a shorter TTL, others wait that long nevertheless for what a "+
			"crashed process held. Use TTLs of %v or more", (least * 2 / 3).Round(time.Second), least, least)
	default:
		x.say(operator.LevelOK, "election", "its election time-out allows leases of %v", least)
	}
}

// revokesRenewed reports whether a version has etcd's issue 15247.
func revokesRenewed(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 || major != 3 {
		return false
	}
	return minor < 4 || minor == 4 && patch < 31 || minor == 5 && patch < 13
}
