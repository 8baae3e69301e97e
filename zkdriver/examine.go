// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// longStop is how long a leader can be stopped and still be the leader afterwards, with ZooKeeper's defaults: its followers leave it after
// syncLimit ticks, five of two seconds. A session that may end within that, counted from a sign of life that it had, is short.
const (
	longStop     = 10 * time.Second
	shortSession = longStop * 6 / 5
)

// Examine is of [operator.Operations]: the session that the servers granted, and what each server says of itself.
func (d *Driver) Examine(ctx context.Context) ([]operator.Finding, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	s, err := d.c.session(ctx)
	if err != nil {
		return nil, err
	}
	f := operator.Finding{Level: operator.LevelOK, Check: "session", Text: fmt.Sprintf("%s has a session of %v for this process, and so leases of at most %v",
		d.c.zk.Server(), s.Timeout(), d.Traits().MaxTTL)}
	switch {
	case s.Timeout() < d.c.timeout:
		f.Level = operator.LevelWarn
		f.Text += fmt.Sprintf(": %v were asked for, and its maxSessionTimeout is shorter", d.c.timeout)
	case s.Timeout() > d.c.timeout:
		f.Level = operator.LevelWarn
		f.Text += fmt.Sprintf(": %v were asked for, and its minSessionTimeout is longer: so long does what a process that dies held last", d.c.timeout)
	}
	found := []operator.Finding{f}
	if s.Timeout() < shortSession {
		found = append(found, operator.Finding{Level: operator.LevelWarn, Check: "leader", Text: fmt.Sprintf("a session of %v is over while a leader is stopped, "+
			"which may be for syncLimit ticks (%v by default): when it goes on, a key may have two holders if the first is cut off at that moment. Ask for %v or more",
			s.Timeout(), longStop, shortSession)})
	}
	connections := d.c.connections(ctx, s) // before doctor itself makes sessions
	if f := d.c.large(ctx); f != nil {
		found = append(found, *f)
	}
	return append(append(found, d.c.ensemble(ctx)...), connections...), nil
}

// large asks for a node with a long name, in a session of its own.
func (c *Conn) large(ctx context.Context) *operator.Finding {
	aside := c.zk.Aside()
	defer aside.Close()
	s, err := aside.Session(ctx)
	if err != nil {
		return nil
	}
	return operator.AskLarge(ctx, func(ctx context.Context, text string) error {
		call := zk.Exists("/" + text)
		return s.Do(ctx, call)
	})
}

// connections says how many of the connections that the server has for one host this one has. Few servers tell.
func (c *Conn) connections(ctx context.Context, s *zk.Session) []operator.Finding {
	addr := c.zk.Server()
	const spare = ": each command that holds a lock or waits has one, and those beyond wait outside of the queue. Raise it"
	conf, err := c.zk.Word(ctx, addr, "conf")
	text, full := c.zk.Word(ctx, addr, "cons")
	if errors.Is(err, zk.ErrFull) || errors.Is(full, zk.ErrFull) {
		return []operator.Finding{{Level: operator.LevelWarn, Check: "connections", Text: fmt.Sprintf("%s closed a new connection of this host at once: "+
			"it has as many as maxClientCnxns allows", addr) + spare}}
	}
	most, bad := strconv.Atoi(fieldOf(conf, "maxClientCnxns"))
	if err != nil || bad != nil || most <= 0 {
		return nil
	}
	hosts, own := map[string]int{}, ""
	for line := range strings.Lines(text) {
		client, _, _ := strings.Cut(strings.TrimSpace(line), "[")
		_, sid, of := strings.Cut(line, "sid=")
		if host, _, err := net.SplitHostPort(strings.TrimPrefix(client, "/")); of && err == nil {
			hosts[host]++
			if id, _, _ := strings.Cut(sid, ","); id == fmt.Sprintf("0x%x", uint64(s.ID())) {
				own = host
			}
		}
	}
	f := operator.Finding{Level: operator.LevelOK, Check: "connections", Text: fmt.Sprintf("%s takes %d connections of a host (maxClientCnxns)", addr, most)}
	if own != "" {
		f.Text = fmt.Sprintf("this host has %d of the %d connections that %s takes of a host (maxClientCnxns)", hosts[own], most, addr)
	}
	if hosts[own]*5 >= most*4 {
		f.Level = operator.LevelWarn
		f.Text += spare
	}
	return []operator.Finding{f}
}

// fieldOf returns the value of a line "name: value", or "name=value".
func fieldOf(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(strings.TrimLeft(value, ":="))
		}
	}
	return ""
}

// ensemble asks each server for its mode, and judges whether they are one.
func (c *Conn) ensemble(ctx context.Context) []operator.Finding {
	texts, bounds, errs := make([]string, len(c.servers)), make([]string, len(c.servers)), make([]error, len(c.servers))
	var asked sync.WaitGroup
	for i, addr := range c.servers {
		asked.Go(func() {
			if texts[i], errs[i] = c.zk.Word(ctx, addr, "srvr"); errs[i] == nil {
				bounds[i], _ = c.zk.Word(ctx, addr, "conf") // few servers allow it
			}
		})
	}
	asked.Wait()
	var found []operator.Finding
	say := func(level operator.Level, check, format string, args ...any) {
		found = append(found, operator.Finding{Level: level, Check: check, Text: fmt.Sprintf(format, args...)})
	}
	modes := map[string]int{}
	for i, addr := range c.servers {
		mode := fieldOf(texts[i], "Mode")
		version, _, _ := strings.Cut(fieldOf(texts[i], "Zookeeper version"), "-")
		switch {
		case errs[i] != nil:
			say(operator.LevelWarn, "mode", "%s does not answer: %v", addr, errs[i])
			continue
		case strings.Contains(texts[i], "not currently serving"):
			say(operator.LevelWarn, "mode", "%s serves no client: it is cut off from the others, or too few of them run", addr)
		case mode == "":
			say(operator.LevelOK, "mode", "%s does not say its mode (srvr is not in its 4lw.commands.whitelist)", addr)
		case mode == "read-only":
			say(operator.LevelWarn, "mode", "%s is read-only: it is cut off from the others, and grants nothing", addr)
		default:
			say(operator.LevelOK, "mode", "%s is ZooKeeper %s, %s", addr, version, mode)
		}
		modes[mode]++
		if least, most := fieldOf(bounds[i], "minSessionTimeout"), fieldOf(bounds[i], "maxSessionTimeout"); least != "" && most != "" {
			say(operator.LevelOK, "session", "%s grants sessions from %s to %s ms", addr, least, most)
		}
	}
	switch {
	case modes["standalone"] > 0 && len(c.servers) > 1:
		say(operator.LevelFail, "ensemble", "%d of the %d servers are standalone: they are no ensemble, and each grants a key without regard to the others. Name one, or make "+
			"them one (server.N= in their configuration)", modes["standalone"], len(c.servers))
	case modes["leader"] > 1:
		say(operator.LevelFail, "ensemble", "%d of the servers are leaders: they belong to several ensembles, and each grants a key without regard to the others. Name the servers "+
			"of one. (While a leader changes, two may say so for a moment: look again)", modes["leader"])
	case modes["standalone"] == 1:
		say(operator.LevelOK, "ensemble", "it is one server: while that is down, nothing is granted or renewed")
	case modes["leader"] == 0 && modes[""] == 0:
		say(operator.LevelWarn, "ensemble", "none of the servers that answer is the leader: name all servers, or this program stops with those that are named")
	}
	return found
}
