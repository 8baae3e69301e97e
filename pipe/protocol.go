// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package pipe gives hasp's locks to other processes, in any language, over a pipe or a unix socket: see docs/protocol.md. The
// connection owns the leases: when it ends, they end. Serve is the agent's end, Client the other.
package pipe

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/jsonrpc"
	"github.com/hasplock/hasp/internal/people"
)

// Version is that of the protocol.
const Version = 1

// The limits of a connection.
const (
	MaxLeases  = 10_000
	MaxWaiting = 1_000
	MaxLine    = jsonrpc.MaxLine // bytes
)

// Kind says what an error is, for programs.
type Kind string

// The kinds.
const (
	Busy          Kind = "busy"          // another holds the key, or waits for it in front of us; the error names the holder
	Lost          Kind = "lost"          // the lease ended before it was released
	Unavailable   Kind = "unavailable"   // the store does not answer, or grants nothing now
	Denied        Kind = "denied"        // the store refused the login, or the permission
	Misconfigured Kind = "misconfigured" // the store cannot be used as it is
	Unsupported   Kind = "unsupported"   // this store, or this protocol, cannot do that
	Closed        Kind = "closed"        // the agent ends, or the client said bye
	Invalid       Kind = "invalid"       // what was asked for is no lock
	Limit         Kind = "limit"         // the connection has as many leases, or waits, as it may
	Cancelled     Kind = "cancelled"     // by $/cancelRequest
)

// Hello is the answer to hello, the first request of a connection.
type Hello struct {
	Protocol  int      `json:"protocol"`
	Hasp      string   `json:"hasp"`    // its version
	Store     string   `json:"store"`   // without its password
	Engine    string   `json:"engine"`  //
	Promise   []string `json:"promise"` // sentences for people
	Fences    bool     `json:"fences"`
	Queue     bool     `json:"queue"`     // first come, first served
	Shared    bool     `json:"shared"`    // mode "shared"
	Slots     bool     `json:"slots"`     // semaphores
	Abandoned bool     `json:"abandoned"` // the next holder is told of one that died
	MinTTL    int64    `json:"min_ttl_ms"`
	MaxTTL    int64    `json:"max_ttl_ms,omitempty"`
	TTL       int64    `json:"ttl_ms"`                // of a lock that names none
	MaxHold   int64    `json:"max_hold_ms,omitempty"` // likewise
}

// helloParams are those of hello.
type helloParams struct {
	Protocols []int  `json:"protocols"` // that the client speaks; none: 1
	Client    string `json:"client"`    // for people
	Alive     Millis `json:"alive_ms"`  // the longest silence of a client that lives; 0: no bound
}

// LockParams are those of lock. The zero value of a field is the default.
type LockParams struct {
	Key     string   `json:"key,omitempty"`
	Keys    []string `json:"keys,omitempty"`    // all or none, instead of Key
	Wait    *Millis  `json:"wait_ms,omitempty"` // nil: without a bound; 0: try once
	TTL     Millis   `json:"ttl_ms,omitempty"`
	Mode    string   `json:"mode,omitempty"` // "exclusive" or "shared"
	Slots   int      `json:"slots,omitempty"`
	MaxHold Millis   `json:"max_hold_ms,omitempty"`
	Lead    Millis   `json:"lead_ms,omitempty"`
	Linger  Millis   `json:"linger_ms,omitempty"` // how long the key is kept when the connection ends without bye
	Cohort  Millis   `json:"cohort_ms,omitempty"` // how long the agent's clients take turns on one grant of the store
	Wanted  bool     `json:"wanted,omitempty"`    // notify when another owner waits for a key
	Reason  string   `json:"reason,omitempty"`
}

// Millis is a duration in milliseconds, of which there may be fractions.
type Millis float64

// InMillis returns a duration as such.
func InMillis(d time.Duration) Millis { return Millis(d) / Millis(time.Millisecond) }

// duration is rounded up: less than a nanosecond is not 0, which means the default, or no bound.
func (m Millis) duration() time.Duration {
	return time.Duration(math.Ceil(float64(m) * float64(time.Millisecond)))
}

// Grant is the answer to lock.
type Grant struct {
	Lease     string     `json:"lease"`
	Keys      []KeyGrant `json:"keys"`
	Fence     string     `json:"fence,omitempty"` // of the only key
	Abandoned bool       `json:"abandoned"`       // of one of the keys
	Until
}

// KeyGrant is a grant of one key.
type KeyGrant struct {
	Key       string `json:"key"`
	Fence     string `json:"fence,omitempty"` // decimal; none: the engine has no fences
	Owner     string `json:"owner"`
	Slot      *int   `json:"slot,omitempty"`
	Abandoned bool   `json:"abandoned"`
}

// Until is until when a lease may be relied on.
type Until struct {
	// Left counts from when the client sent the request.
	Left int64 `json:"left_ms"`
	// Deadline is the same instant on this machine's CLOCK_BOOTTIME, in nanoseconds; empty where there is none.
	Deadline string `json:"deadline_boottime_ns,omitempty"`
}

// until returns a deadline, for a request that came at a time. The client's clock may have gone on in a sleep since then, and not by a step.
// now is read before the deadline: the lease seems to end earlier, and never later, if the machine sleeps in between.
func until(now clock.Instant, deadline time.Time, came clock.Instant) Until {
	rest := time.Until(deadline)
	l := Until{Left: max(rest+max(now.Mono-came.Mono, now.Boot-came.Boot), 0).Milliseconds()}
	if now.Boot != 0 {
		l.Deadline = strconv.FormatInt(int64(now.Boot+rest), 10)
	}
	return l
}

// Status is the answer to status.
type Status struct {
	Leases  int `json:"leases"`
	Waiting int `json:"waiting"`
	Until       // of the lease that was named, or of the one that ends first; 0 without any
}

// Notice is what lost, wanted and ending say.
type Notice struct {
	Lease   string   `json:"lease,omitempty"`
	Keys    []string `json:"keys,omitempty"`
	Left    int64    `json:"left_ms"` // lost: until another may have the key, at most lead_ms; ending: until the agent ends
	Message string   `json:"message,omitempty"`
}

// ErrorData is the data of an error.
type ErrorData struct {
	Kind   Kind               `json:"kind"`
	Key    string             `json:"key,omitempty"`
	Holder *people.HolderJSON `json:"holder,omitempty"` // of a key that is busy
}

// failure is the error of a request that was wrong.
func failure(kind Kind, format string, args ...any) error {
	code := codeFailed
	if kind == Invalid {
		code = jsonrpc.CodeParams
	}
	return &jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...), Data: ErrorData{Kind: kind}}
}

// codeFailed is the code of an error that its kind describes.
const codeFailed = -32000

// items are the locks that a request names.
func (p *LockParams) items(c *hasp.Client, o *Options) (items hasp.Locks, err error) {
	keys := p.Keys
	if p.Key != "" {
		keys = append([]string{p.Key}, keys...)
	}
	if line, _ := json.Marshal(keys); len(line)+len(keys)*maxKeyGrant+1024 > MaxLine { // a lease whose name the client cannot be told is none
		return nil, failure(Limit, "the answer for %d keys would have more than a line", len(keys))
	}
	opts := &hasp.LockOptions{TTL: p.TTL.duration(), MaxHold: p.MaxHold.duration(), Lead: p.Lead.duration(), Cohort: p.Cohort.duration(), Reason: p.Reason, Label: o.Label}
	if p.TTL == 0 {
		opts.TTL = o.TTL
	}
	if p.MaxHold == 0 {
		opts.MaxHold = o.MaxHold
	}
	if p.Cohort != 0 { // one grant for several clients: it is the agent's
		opts.Label, opts.Reason = nil, ""
	}
	shared := p.Mode == "shared"
	switch {
	case len(keys) == 0:
		return nil, failure(Invalid, "there is no key: name it in params, as key or keys")
	case p.Mode != "" && p.Mode != "exclusive" && !shared, shared && p.Slots != 0:
		return nil, failure(Invalid, `the mode is %.100q: it is "exclusive" or "shared", and left out with slots`, p.Mode)
	}
	for _, m := range []Millis{p.TTL, p.MaxHold, p.Lead, p.Linger, p.Cohort} {
		if m < 0 || m > maxMillis {
			return nil, failure(Invalid, "%v ms is no time: it is between 0 and ten years", float64(m))
		}
	}
	for _, key := range keys {
		if strings.ContainsRune(key, '\uFFFD') { // what JSON could not carry, and two keys would be one
			return nil, failure(Invalid, "the key %.100q has a character that is none", key)
		}
		switch {
		case p.Slots != 0:
			items = append(items, c.Semaphore(key, p.Slots, opts))
		case shared:
			items = append(items, c.RWMutex(key, opts).RLocker())
		default:
			items = append(items, c.Mutex(key, opts))
		}
	}
	return items, nil
}

// maxKeyGrant is the most that a KeyGrant has beside its key, in bytes.
const maxKeyGrant = 150

const maxMillis = 10 * 365 * 24 * 3600 * 1000

// granted is what leases came to.
func granted(id string, leases *hasp.Leases, tr driver.Traits, slots bool, came clock.Instant) Grant {
	g := Grant{Lease: id, Until: until(clock.System(), leases.Deadline(), came)}
	for _, l := range leases.All() {
		k := KeyGrant{Key: l.Key(), Owner: l.Owner(), Abandoned: l.Abandoned()}
		if tr.Fencing {
			k.Fence = strconv.FormatUint(l.Fence(), 10)
		}
		if slot := l.Slot(); slots {
			k.Slot = &slot
		}
		g.Keys, g.Abandoned = append(g.Keys, k), g.Abandoned || k.Abandoned
	}
	if len(g.Keys) == 1 {
		g.Fence = g.Keys[0].Fence
	}
	return g
}
