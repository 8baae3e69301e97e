// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errCompany is of a request that failed beside others in one script. Alone,
// the client sees the server's error, and acts on it (READONLY: another server
// is the master now). Asking again is harmless: see [driver.Driver].
var errCompany = errors.New("redis: a request failed in company")

// exec runs calls as one pipeline: EVALSHA, then with EVAL what the server did
// not know, and alone what failed in company. It sets reply and err of each.
func (s *sender) exec(ctx context.Context, calls []*call) {
	s.pipe(ctx, calls, scriptCalls, false)
	for range 2 { // the server may not know the script, or fail in company
		var again, alone []*call
		for _, c := range calls {
			switch {
			case c.err == errCompany: //nolint:errorlint // the very value, set in answer
				alone = append(alone, c)
			case c.err != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT"):
				again = append(again, c)
			}
		}
		if len(again)+len(alone) == 0 {
			return
		}
		if again = stillWanted(again); len(again) > 0 {
			s.pipe(ctx, again, scriptCalls, true)
		}
		if alone = stillWanted(alone); len(alone) > 0 {
			s.pipe(ctx, alone, 1, false)
		}
	}
}

// stillWanted leaves out the calls whose callers left: what they asked for may
// have been released meanwhile.
func stillWanted(calls []*call) []*call {
	return slices.DeleteFunc(calls, func(c *call) bool {
		if c.ctx == nil || c.ctx.Err() == nil {
			return false
		}
		c.err = c.ctx.Err()
		return true
	})
}

// pipe sends calls, requests of the batch script at most size to a script;
// with load, the server learns the scripts.
func (s *sender) pipe(ctx context.Context, calls []*call, size int, load bool) {
	var cmds []command
	for rest, known := calls, (map[*script]bool)(nil); len(rest) > 0; {
		n := together(rest, size)
		text := load && !known[rest[0].script]
		if load && s.batch > 1 { // in a cluster each goes to a node of its own
			if known == nil {
				known = map[*script]bool{}
			}
			known[rest[0].script] = true
		}
		cmds = append(cmds, newCommand(ctx, rest[:n], text))
		rest = rest[n:]
	}
	var all, short, shut error
	switch {
	case s.replicas > 0:
		short, all = s.replicate(ctx, cmds)
	case len(cmds) == 1:
		all = s.rdb.Process(ctx, cmds[0])
	default:
		p := s.rdb.Pipeline()
		for _, cmd := range cmds {
			_ = p.Process(ctx, cmd)
		}
		_, all = p.Exec(ctx)
	}
	for _, cmd := range cmds {
		reply, err := cmd.Result()
		if err == nil && reply != nil {
			err = short
		}
		if err == nil && reply == nil {
			// A connection whose set-up the server refused (a wrong password)
			// leaves a pipeline's commands without a word.
			err = cmp.Or(all, errReply)
		}
		if err == nil && !s.reached.Load() {
			s.reached.Store(true)
		}
		if shut != nil && errors.Is(err, io.EOF) {
			err = shut
		} else if err = explain(err); unauthenticated(err) {
			shut = err // the server closes the connection on the commands behind it
		}
		cmd.answer(reply, err)
	}
}

func unauthenticated(err error) bool {
	return redis.HasErrorPrefix(err, "Protocol error: unauthenticated")
}

// nonLocal is of a script whose named keys all exist on the master that their slot leaves, and which came to one that does not.
const nonLocal = "non local key"

// explain adds to errors of the server that do not say what to do.
func explain(err error) error {
	switch {
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return fmt.Errorf("%w (this server is a cluster: use a redis.ClusterClient)", err)
	case redis.HasErrorPrefix(err, "TRYAGAIN"), err != nil && strings.Contains(err.Error(), nonLocal):
		return fmt.Errorf("%w (the key's hash slot moves to another master; once it has moved, this works again)", err)
	case unauthenticated(err):
		return fmt.Errorf("%w (the server wants a password)", err)
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w (the program closed its Redis client: close hasp's client first)", err)
	}
	return err
}

// command is an EVALSHA or EVAL that the client does not send again by itself,
// whatever its options say: after a time-out it would arrive when the caller
// is long gone and has released what it asked for.
type command struct {
	*redis.Cmd
	calls []*call
}

func (command) NoRetry() bool { return true }

// Args is what the client asks for when it writes. A call that was given up before
// is not sent even then, by a hook that goes on after its caller: PING is.
func (c command) Args() []any {
	for _, call := range c.calls {
		if !call.fate.CompareAndSwap(unsent, sent) && call.fate.Load() == void {
			return []any{"ping"}
		}
	}
	return c.Cmd.Args()
}

func (c command) Clone() redis.Cmder { return command{c.Cmd.Clone().(*redis.Cmd), c.calls} }

// together counts the calls at the front that one command carries.
func together(calls []*call, size int) int {
	n := 1
	for calls[0].script.batch && n < min(len(calls), size) && calls[n].script.batch {
		n++
	}
	return n
}

func newCommand(ctx context.Context, calls []*call, text bool) command {
	first := calls[0]
	nkeys, nargs := 0, 0
	for _, c := range calls {
		nkeys, nargs = nkeys+len(c.keys), nargs+len(c.args)
	}
	args := make([]any, 0, 7+nkeys+nargs)
	if text {
		args = append(args, "eval", first.script.text)
	} else {
		args = append(args, "evalsha", first.script.sha)
	}
	if first.script.batch {
		args = append(args, 1+len(first.script.keys)+nkeys, first.mark)
		args = append(args, first.script.keys...)
	} else {
		args = append(args, nkeys)
	}
	for _, c := range calls {
		args = append(args, c.keys...)
	}
	if first.script.batch {
		args = append(args, len(calls))
	}
	for _, c := range calls {
		args = append(args, c.args...)
	}
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return command{cmd, calls}
}

// answer deals out the reply of a script.
func (c command) answer(reply any, err error) {
	if err != nil || !c.calls[0].script.batch {
		for _, call := range c.calls {
			call.reply, call.err = reply, err
			if err != nil && call.script.batch {
				call.err = call.dataError(err)
			}
		}
		return
	}
	answers, _ := reply.([]any)
	life := ""
	if n := len(c.calls); len(answers) == n+1 && len(c.calls[0].script.keys) > 0 {
		life, _ = answers[n].(string)
		answers = answers[:n]
	}
	for i, call := range c.calls {
		switch {
		case len(answers) != len(c.calls):
			call.err = errReply
		case answers[i] == nil:
			call.err = errCompany
		default:
			call.reply, call.life, call.err = answers[i], life, nil
		}
	}
}
