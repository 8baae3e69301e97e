// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"os"
	"os/user"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/process"
)

// self is what labels say about this process.
var self = sync.OnceValue(func() driver.Label {
	l := driver.Label{PID: os.Getpid(), Process: process.Self()}
	l.Host, _ = os.Hostname() // a label without a host is still a label
	if u, err := user.Current(); err == nil {
		l.User = u.Username
	}
	return l
})

// labels makes the labels of a client's acquisitions.
type labels struct{ latest atomic.Pointer[labelText] }

// labelText is Label.Encode for one reason, but for the time.
type labelText struct{ reason, before, after string }

const labelTime = "2006-01-02T15:04:05.000Z"

// label describes an acquisition that begins now.
func (ls *labels) label(reason string) string {
	l := ls.latest.Load()
	if l == nil || l.reason != reason {
		ref := time.Date(2006, 1, 2, 15, 4, 5, int(time.Millisecond), time.UTC)
		who := self()
		who.Reason, who.Since = reason, ref
		l = &labelText{reason: reason}
		text := who.Encode()
		at := strings.LastIndex(text, ref.Format(labelTime)) // since comes last
		l.before, l.after = text[:at], text[at+len(labelTime):]
		ls.latest.Store(l)
	}
	b := make([]byte, 0, driver.MaxLabel) // of a fixed size, it stays on the stack
	b = time.Now().UTC().AppendFormat(append(b, l.before...), labelTime)
	return string(append(b, l.after...))
}
