// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/process"
)

// The objects of the API are those of hasp ls and hasp show with -o json, with an id. More
// fields may come.

// problem is the answer to a request that failed.
type problem struct {
	Error string   `json:"error"`
	Now   *keyJSON `json:"now,omitempty"` // how the key is held instead
}

type keyJSON struct {
	ID     string      `json:"id"` // the key as it stands in a path
	Key    string      `json:"key"`
	Bytes  []byte      `json:"key_base64,omitempty"` // when JSON cannot carry the key as it is
	Held   bool        `json:"held"`
	Holder *holderJSON `json:"holder,omitempty"` // of several, the first
	Fence  uint64      `json:"fence,omitempty"`
	leftJSON
	Holds   int           `json:"holds"`
	Holders []heldJSON    `json:"holders,omitempty"` // of one key
	Waiters int           `json:"waiters"`
	Queue   []*holderJSON `json:"queue,omitempty"`   // of one key
	ByHand  []string      `json:"by_hand,omitempty"` // statements of the store's own language
	Free    []string      `json:"free_by_hand,omitempty"`
}

type heldJSON struct {
	*holderJSON
	Fence uint64 `json:"fence,omitempty"`
	leftJSON
}

// leftJSON: neither means that the store does not say.
type leftJSON struct {
	Left  float64 `json:"left_seconds,omitempty"`
	Never bool    `json:"never_ends,omitempty"`
}

type holderJSON struct {
	Owner   string     `json:"owner,omitempty"`
	Host    string     `json:"host,omitempty"`
	PID     int        `json:"pid,omitempty"`
	User    string     `json:"user,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Ended   bool       `json:"ended,omitempty"` // its process is known to have ended
	Foreign bool       `json:"foreign,omitempty"`
	Value   string     `json:"value,omitempty"` // of a foreign holder
	Mode    string     `json:"mode"`
	Slots   int        `json:"slots,omitempty"`
	Slot    *int       `json:"slot,omitempty"`
}

func toKeyJSON(i hasp.Info) *keyJSON {
	k := &keyJSON{ID: encodeKey(i.Key), Key: i.Key, Held: i.Held, Fence: i.Fence, Holds: i.Holds, Waiters: i.Waiters, ByHand: i.ByHand, Free: i.Free}
	if !utf8.ValidString(i.Key) {
		k.Bytes = []byte(i.Key)
	}
	if i.Held {
		k.Holder, k.leftJSON = holding(i.Holder), toLeft(i.Left)
	}
	for _, l := range i.Holders {
		k.Holders = append(k.Holders, heldJSON{holding(l.Holder), l.Fence, toLeft(l.Left)})
	}
	for _, h := range i.Queue {
		k.Queue = append(k.Queue, toHolderJSON(h))
	}
	return k
}

func toLeft(left time.Duration) leftJSON { return leftJSON{max(left, 0).Seconds(), left < 0} }

func holding(h hasp.Holder) *holderJSON {
	j := toHolderJSON(h)
	if h.Limit > 0 {
		j.Slot = &h.Slot
	}
	return j
}

func toHolderJSON(h hasp.Holder) *holderJSON {
	l := h.Describe()
	j := &holderJSON{Owner: h.Owner, Mode: modeName(h.Mode), Slots: h.Limit, Host: l.Host, PID: l.PID, User: l.User, Reason: l.Reason, Ended: ended(h), Foreign: h.Foreign}
	if year := l.Since.Year(); !l.Since.IsZero() && year >= 0 && year <= 9999 { // others JSON cannot carry
		j.Since = &l.Since
	}
	if h.Foreign {
		j.Value = h.Label
	}
	return j
}

func modeName(m hasp.Mode) string {
	if m == hasp.Shared {
		return "shared"
	}
	return "exclusive"
}

var thisHost, _ = os.Hostname()

// ended says whether the process of a holder, or a waiter, is known to have ended.
func ended(h hasp.Holder) bool {
	l := h.Describe()
	return !h.Foreign && thisHost != "" && l.Host == thisHost && process.Ended(l.Process, l.PID)
}

// encodeJSON returns v in one line. encoding/json escapes what HTML acts on, but leaves what
// a terminal does (C1, DEL) and what turns text around: here they are \u escapes.
func encodeJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil { // nothing in our types can be refused
		panic(err)
	}
	b := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		switch { // nothing but ASCII that can be printed stands outside of strings
		case unicode.IsPrint(r):
			b = append(b, raw[:size]...)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
		raw = raw[size:]
	}
	return b
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(encodeJSON(v), '\n'))
}
