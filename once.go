// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/backoff"
)

// Once is work that is done once for each occurrence: the nightly job of a date, the mail of an order. A Mutex does not give that: it
// excludes for a time, and of three hosts whose clocks differ by a second each would run a short job, one after the other.
// While the key is still held, Once leaves a mark in the store that the occurrence is done, and later holders find it.
//
// It is once, or again after a crash: a process that dies between its work and the mark leaves none, and the next holder runs, and is told
// (Lease.Abandoned). Storage that compares the fence can make its write once even then.
//
// While it runs, the key KEY#~OCCURRENCE is held, too: so a crash is told to the next holder that works on this occurrence, whichever
// others held KEY meanwhile. A mark is a shared lease of a key of its own, KEY#OCCURRENCE, which ends by itself. It is as durable as the engine's leases. Like a
// Mutex, a Once is a handle without state.
type Once struct {
	m, run *Mutex
	mark   *lock
}

// Once returns the work of a key of 1 to 512 bytes for one occurrence of it, any text but an empty one. keep is how long it is
// remembered: longer than clocks, or retries, of the same occurrence may differ. nil options mean the defaults. What is invalid, and an engine
// that cannot keep a mark for so long, or shares no key (ErrUnsupported), is reported on first use.
func (c *Client) Once(key, occurrence string, keep time.Duration, o *LockOptions) *Once {
	note := LockOptions{TTL: keep, NoRenew: true, Reason: "(done: " + occurrence + ")", Label: &driver.Label{}}
	if o != nil && o.Reason != "" {
		note.Reason = o.Reason + " " + note.Reason
	}
	if o != nil && o.Label != nil {
		*note.Label = *o.Label
	}
	note.Label.Kept = true
	work := LockOptions{}
	if o != nil {
		work = *o
		work.Keep, work.Cohort = 0, 0
	}
	mark, run := onceKeys(key, occurrence)
	once := &Once{c.Mutex(key, o), c.Mutex(run, &work), c.lock(mark, &note, Shared, 0)}
	switch most := once.mark.c.traits.MaxTTL; {
	case most > 0 && keep > most:
		once.mark.err = mistake{fmt.Errorf("a mark cannot be kept for %v: this store keeps nothing for longer than %v", keep, most)}
	case !once.mark.c.traits.MarksAbandoned:
		once.mark.err = mistake{fmt.Errorf("%w: %s does not tell a holder that the one before it died", ErrUnsupported, once.mark.c.traits.Engine)}
	case keep <= 0:
		once.mark.err = mistake{errors.New("a mark that is kept for no time marks nothing: keep must be positive")}
	case occurrence == "":
		once.mark.err = mistake{errors.New("the occurrence is empty: name it, such as by its date")}
	}
	return once
}

// onceKeys are the keys of a mark, and of the work. No two pairs of a key and an occurrence share one.
func onceKeys(key, occurrence string) (mark, run string) {
	if len(key)+len("#~")+len(occurrence) > driver.MaxKey || strings.Contains(key, "#") || strings.HasPrefix(occurrence, "#") || strings.HasPrefix(occurrence, "~") {
		sum := sha256.Sum256([]byte(strconv.Itoa(len(key)) + ":" + key + occurrence))
		key, occurrence = strings.ReplaceAll(key, "#", "_"), "#"+hex.EncodeToString(sum[:])
		key = key[:min(len(key), driver.MaxKey-len("#~")-len(occurrence))]
	}
	return key + "#" + occurrence, key + "#~" + occurrence
}

// Do waits for the key, and runs f unless the occurrence is done. If f returns nil, it is done; if it fails or panics, it is not. f's
// context and the errors are as of Mutex.Do. ran says whether f was called. When f has returned nil and the mark could not be
// written within 5 seconds, there is an error, and the next holder is told (Lease.Abandoned).
func (o *Once) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) (ran bool, err error) {
	if o.mark.err != nil { // before the work
		return false, o.mark.c.fail("mark", o.mark.key, o.mark.err)
	}
	err = o.Locks().Do(ctx, func(ctx context.Context, leases *Leases) error {
		lease, of := leases.All()[0], leases.All()[1]
		told := lease.Abandoned() || of.Abandoned()
		done, _, err := o.Done(ctx)
		if (done || err != nil) && told { // a release would say that it was repaired
			return errors.Join(err, leases.Abandon())
		}
		if done || err != nil {
			return err
		}
		lease.left, ran = told, true
		if err := f(ctx, lease); err != nil {
			return err
		}
		if err := o.Mark(lease); err != nil {
			return errors.Join(err, leases.Abandon())
		}
		return nil
	})
	return ran, err
}

// Locks are what a caller of Done and Mark holds: of the key, and of the work on the occurrence. One of them is Abandoned after a crash.
func (o *Once) Locks() Locks { return Locks{o.m, o.run} }

// Done says whether the occurrence is marked as done, and by which owner. It can be relied on while its key is held. ErrHeld: a lock has the
// name of the mark.
func (o *Once) Done(ctx context.Context) (done bool, by Holder, err error) {
	c, key := o.mark.c, o.mark.key
	if o.mark.err != nil {
		return false, by, c.fail("mark", key, o.mark.err)
	}
	info, err := c.inspect(ctx, key)
	for _, h := range info.Holders { // a reader may share the key with the mark
		if h.Holder.Mode == Shared && !h.Holder.Foreign && h.Holder.Describe().Kept {
			return true, h.Holder, nil
		}
	}
	if err == nil && info.Held && info.Holder.Mode == Exclusive { // no mark could be left after the work
		err = &HeldError{Holder: info.Holder, Left: info.Left}
	}
	return false, by, c.fail("inspect", key, err)
}

// Mark marks the occurrence as done, for a caller that holds its key by a lease of its own, and has done the work. It asks the store for as long
// as the lease lasts, but no longer than 5 seconds. On an error the mark may be there or not.
func (o *Once) Mark(lease *Lease) error {
	c, key := o.mark.c, o.mark.key
	if o.mark.err != nil {
		return c.fail("mark", key, o.mark.err)
	}
	ctx, cancel := context.WithTimeout(lease.Context(context.Background()), releaseLimit)
	defer cancel()
	ctx, done, err := c.calls.During(ctx)
	if err != nil {
		return c.fail("mark", key, err)
	}
	defer done()
	req := driver.TryRequest{
		Claim: driver.Claim{Key: key, Owner: rand.Text(), Label: c.labels.label(&o.mark.opts.LockOptions), Mode: Shared},
		TTL:   o.mark.opts.TTL,
	}
	for pause := (backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}); ; {
		res, away, err := c.tryStore(ctx, req)
		switch {
		case err == nil && away == nil && res.Granted:
			return c.fail("mark", key, lease.Err())
		case err == nil && away == nil:
			err = &HeldError{Holder: res.Holder, Left: res.Left} // a lock has the name of the mark
		}
		err = cmp.Or(err, away)
		if errors.Is(err, ErrHeld) || c.classify(err) == driver.ClassImpossible || !pause.Wait(ctx.Done()) {
			return c.fail("mark", key, cmp.Or(lease.Err(), err))
		}
	}
}
