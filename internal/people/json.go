// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package people

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// KeyJSON is a key for programs: of hasp ls, hasp show and the API. More fields may come.
type KeyJSON struct {
	Key    string      `json:"key"`
	Bytes  []byte      `json:"key_base64,omitempty"` // when JSON cannot carry the key as it is
	Held   bool        `json:"held"`
	Holder *HolderJSON `json:"holder,omitempty"` // of several, the first
	Fence  uint64      `json:"fence,omitempty"`
	LeftJSON
	Holds   int           `json:"holds"`
	Holders []HeldJSON    `json:"holders,omitempty"` // of one key
	Waiters int           `json:"waiters"`
	Queue   []*HolderJSON `json:"queue,omitempty"`        // of one key
	ByHand  []string      `json:"by_hand,omitempty"`      // statements of the store's own language
	Free    []string      `json:"free_by_hand,omitempty"` // of a foreign holder that never expires
}

// HeldJSON is one of the holders of a key.
type HeldJSON struct {
	*HolderJSON
	Fence uint64 `json:"fence,omitempty"`
	LeftJSON
}

// LeftJSON is how long a lease lasts without renewal; neither: the store does not say.
type LeftJSON struct {
	Left  Seconds `json:"left_seconds,omitempty"`
	Never bool    `json:"never_ends,omitempty"`
}

// HolderJSON is a holder, or a waiter.
type HolderJSON struct {
	Owner   string     `json:"owner,omitempty"`
	Host    string     `json:"host,omitempty"`
	PID     int        `json:"pid,omitempty"`
	User    string     `json:"user,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Ended   bool       `json:"ended,omitempty"` // its process is known to have ended
	Kept    bool       `json:"kept,omitempty"`  // it keeps the key on purpose: its command has ended
	Foreign bool       `json:"foreign,omitempty"`
	Value   string     `json:"value,omitempty"` // of a foreign holder
	Mode    string     `json:"mode"`            // exclusive, shared
	Slots   int        `json:"slots,omitempty"` // of a semaphore
	Slot    *int       `json:"slot,omitempty"`  // of a holder of one
}

// ToKeyJSON returns a key, without statements.
func ToKeyJSON(i hasp.Info) KeyJSON {
	k := KeyJSON{Key: i.Key, Held: i.Held, Fence: i.Fence, Holds: i.Leases, Waiters: i.Waiters}
	if !utf8.ValidString(i.Key) {
		k.Bytes = []byte(i.Key)
	}
	if i.Held {
		k.Holder, k.LeftJSON = Holding(i.Holder), ToLeftJSON(i.Left)
	}
	for _, l := range i.Holders {
		k.Holders = append(k.Holders, HeldJSON{Holding(l.Holder), l.Fence, ToLeftJSON(l.Left)})
	}
	for _, h := range i.Queue {
		k.Queue = append(k.Queue, Waiting(h))
	}
	return k
}

// Info is the opposite of ToKeyJSON, but for what that leaves out.
func (k KeyJSON) Info() hasp.Info {
	i := hasp.Info{Key: k.Key, Held: k.Held, Holder: k.Holder.Back(), Fence: k.Fence, Left: time.Duration(k.Left), Leases: k.Holds, Waiters: k.Waiters}
	for _, l := range k.Holders {
		i.Holders = append(i.Holders, driver.Holding{Holder: l.Back(), Fence: l.Fence, Left: time.Duration(l.Left)})
	}
	if i.Held && len(i.Holders) == 0 { // of an engine that has one holder at a time
		i.Holders = []driver.Holding{{Holder: i.Holder, Fence: i.Fence, Left: i.Left}}
	}
	for _, h := range k.Queue {
		i.Queue = append(i.Queue, h.Back())
	}
	return i
}

// Back is the opposite of Holding and Waiting.
func (j *HolderJSON) Back() hasp.Holder {
	if j == nil {
		return hasp.Holder{}
	}
	h := hasp.Holder{Owner: j.Owner, Foreign: j.Foreign, Limit: j.Slots, Label: j.Value}
	if j.Since != nil {
		h.Since = *j.Since
	}
	if !j.Foreign {
		h.Label = driver.Label{Host: j.Host, PID: j.PID, User: j.User, Reason: j.Reason, Kept: j.Kept}.Encode()
	}
	if j.Mode == hasp.Shared.String() {
		h.Mode = hasp.Shared
	}
	if j.Slot != nil {
		h.Slot = *j.Slot
	}
	return h
}

// ToLeftJSON returns what is left of a lease; less than nothing: it never ends.
func ToLeftJSON(left time.Duration) LeftJSON { return LeftJSON{Seconds(max(left, 0)), left < 0} }

// Seconds is a duration for programs, a number of seconds: to the millisecond, and one below a second to the microsecond.
type Seconds time.Duration

// MarshalJSON writes no digits that only the binary fraction has.
func (s Seconds) MarshalJSON() ([]byte, error) {
	d, unit := time.Duration(s), time.Millisecond
	if d.Abs() < time.Second {
		unit = time.Microsecond
	}
	return strconv.AppendFloat(nil, float64(d.Round(unit).Microseconds())/1e6, 'f', -1, 64), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 64)
	*s = Seconds(f * 1e9)
	return err
}

// Unnamed says that the store did not name the owner.
func Unnamed(h hasp.Holder) bool { return h.Owner == "" && h.Label == "" && !h.Foreign }

// Holding returns a holder of a key; nil for none.
func Holding(h hasp.Holder) *HolderJSON {
	j := Waiting(h)
	if j != nil && h.Limit > 0 {
		j.Slot = &h.Slot
	}
	return j
}

// Waiting returns a waiter for a key; nil for none.
func Waiting(h hasp.Holder) *HolderJSON {
	if Unnamed(h) {
		return nil
	}
	l := h.Describe()
	j := &HolderJSON{Owner: h.Owner, Mode: h.Mode.String(), Slots: h.Limit, Host: l.Host, PID: l.PID, User: l.User, Reason: l.Reason, Ended: Ended(h), Kept: Kept(h), Foreign: h.Foreign}
	if year := l.Since.Year(); !l.Since.IsZero() && year >= 0 && year <= 9999 { // others JSON cannot carry
		j.Since = &l.Since
	}
	if h.Foreign {
		j.Value = h.Label
	}
	return j
}
