// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"
)

// errCompany is of a request that failed beside others in one script. Alone,
// the client sees the server's error, and acts on it (READONLY: another server
// is the master now). Asking again is harmless: see [driver.Driver].
var errCompany = errors.New("redis: a request failed in company")

// Exec runs calls as one pipeline: EVALSHA, then with EVAL what the server did
// not know, and alone what failed in company. It sets Reply and Err of each.
func (s *Sender) Exec(ctx context.Context, calls []*Call) {
	s.pipe(ctx, calls, ScriptCalls, false)
	for range 2 { // the server may not know the script, or fail in company
		var again, alone []*Call
		for _, c := range calls {
			switch {
			case c.Err == errCompany: //nolint:errorlint // the very value, set in answer
				alone = append(alone, c)
			case c.Err != nil && Says(c.Err, "NOSCRIPT"):
				again = append(again, c)
			}
		}
		if len(again)+len(alone) == 0 {
			return
		}
		if again = stillWanted(again); len(again) > 0 {
			s.pipe(ctx, again, ScriptCalls, true)
		}
		if alone = stillWanted(alone); len(alone) > 0 {
			s.pipe(ctx, alone, 1, false)
		}
	}
}

// stillWanted leaves out the calls that their callers left: what they asked for
// may have been released meanwhile.
func stillWanted(calls []*Call) []*Call {
	return slices.DeleteFunc(calls, func(c *Call) bool {
		if c.ctx == nil || c.ctx.Err() == nil {
			return false
		}
		c.Err = c.ctx.Err()
		return true
	})
}

// goneUnnoticed reports whether another node may be the master though a cluster's client does not look for it: that looks after MOVED,
// ASK and READONLY. A client of one node never does.
func goneUnnoticed(err error) bool {
	var said ServerError
	return !errors.As(err, &said) || Says(err, "CLUSTERDOWN") || Says(err, "MASTERDOWN") || Says(err, "LOADING")
}

// pipe sends calls, requests of the batch script at most size to a script;
// with load, the server learns the scripts.
func (s *Sender) pipe(ctx context.Context, calls []*Call, size int, load bool) {
	cmds := make([]Command, 0, (len(calls)+size-1)/size)
	for rest, known := calls, (map[*Script]bool)(nil); len(rest) > 0; {
		n := together(rest, size)
		text := load && !known[rest[0].Script]
		if load && s.batch > 1 { // in a cluster each goes to a node of its own
			if known == nil {
				known = map[*Script]bool{}
			}
			known[rest[0].Script] = true
		}
		cmds = append(cmds, newCommand(rest[:n], text))
		rest = rest[n:]
	}
	var all, short, shut error
	if s.replicas > 0 {
		short, all = s.replicate(ctx, cmds)
	} else {
		all = s.client.Run(ctx, cmds)
	}
	if all != nil && (s.replicas > 0 || goneUnnoticed(all)) {
		s.client.LookAgain(ctx) // another node may be the master
	}
	for i := range cmds {
		err := cmds[i].Err
		if err == nil {
			err = short
		}
		if shut != nil && errors.Is(err, io.EOF) {
			err = shut
		} else if err = explain(err); unauthenticated(err) {
			shut = err // the server closes the connection on the commands behind it
		}
		cmds[i].answer(err)
	}
}

// together counts the calls at the front that one command carries.
func together(calls []*Call, size int) int {
	n := 1
	for calls[0].Script.Batch && n < min(len(calls), size) && calls[n].Script.Batch {
		n++
	}
	return n
}

func newCommand(calls []*Call, text bool) Command {
	first := calls[0]
	nkeys, nargs := 0, 0
	for _, c := range calls {
		nkeys, nargs = nkeys+len(c.Keys), nargs+len(c.Args)
	}
	args := make([]any, 0, 7+nkeys+nargs)
	if text {
		args = append(args, "eval", first.Script.Text())
	} else {
		args = append(args, "evalsha", first.Script.sha())
	}
	if first.Script.Batch {
		args = append(args, 1+len(first.Script.Keys)+nkeys, first.Mark)
		args = append(args, first.Script.Keys...)
	} else {
		args = append(args, nkeys)
	}
	for _, c := range calls {
		args = append(args, c.Keys...)
	}
	if first.Script.Batch {
		args = append(args, len(calls))
	}
	for _, c := range calls {
		args = append(args, c.Args...)
	}
	return Command{Args: args, calls: calls}
}

// answer deals out the reply of a script.
func (c *Command) answer(err error) {
	if err != nil || !c.calls[0].Script.Batch {
		for _, call := range c.calls {
			call.Reply, call.Err = c.Reply, err
			if err != nil && call.Script.Fault != nil {
				call.Err = call.Script.Fault(call, err)
			}
		}
		return
	}
	if len(c.calls) == 1 && len(c.calls[0].Script.Keys) == 0 {
		c.calls[0].Reply, c.calls[0].Err = c.Reply, nil
		return
	}
	answers, _ := c.Reply.([]any)
	life := ""
	if n := len(c.calls); len(answers) == n+1 && len(c.calls[0].Script.Keys) > 0 {
		life, _ = answers[n].(string)
		answers = answers[:n]
	}
	for i, call := range c.calls {
		switch {
		case len(answers) != len(c.calls):
			call.Err = ErrReply
		case answers[i] == nil:
			call.Err = errCompany
		default:
			call.Reply, call.Life, call.Err = answers[i], life, nil
		}
	}
}

// replicaTime is for how long a master waits for its replicas at most.
const replicaTime = time.Second

// replicate carries out commands about keys of one master, over one connection: WAIT is about what its own connection wrote. short
// is why none of them counts; all is what the pipeline said.
func (s *Sender) replicate(ctx context.Context, cmds []Command) (short, all error) {
	wait := shorter(replicaTime, s.traits.ReadTimeout)
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(at)*3/4)
	}
	node, err := s.client.Masters(ctx, cmds[0].calls[0].Keys[0].(string))
	if err != nil {
		return err, err
	}
	piped := slices.Concat(cmds, []Command{Plain("wait", s.replicas, max(wait.Milliseconds(), 1))}) // 0: for ever
	all = node[0].Run(ctx, piped)
	n, err := piped[len(cmds)].Int()
	if copy(cmds, piped); err == nil && int(n) < s.replicas {
		err = &ReplicasError{Want: s.replicas, Got: int(n)}
	}
	return err, all
}

// shorter is wait, or half of what the client gives an answer; 0: any time.
func shorter(wait, timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return wait
	}
	return min(wait, timeout/2)
}
