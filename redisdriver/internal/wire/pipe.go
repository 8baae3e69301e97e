// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
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
			case c.Err != nil && redis.HasErrorPrefix(c.Err, "NOSCRIPT"):
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
	var said redis.Error
	return !errors.As(err, &said) ||
		redis.HasErrorPrefix(err, "CLUSTERDOWN") || redis.HasErrorPrefix(err, "MASTERDOWN") || redis.HasErrorPrefix(err, "LOADING")
}

// pipe sends calls, requests of the batch script at most size to a script;
// with load, the server learns the scripts.
func (s *Sender) pipe(ctx context.Context, calls []*Call, size int, load bool) {
	var room [1]*command
	cmds := room[:0]
	for rest, known := calls, (map[*Script]bool)(nil); len(rest) > 0; {
		n := together(rest, size)
		text := load && !known[rest[0].Script]
		if load && s.batch > 1 { // in a cluster each goes to a node of its own
			if known == nil {
				known = map[*Script]bool{}
			}
			known[rest[0].Script] = true
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
	if c, ok := s.rdb.(*redis.ClusterClient); ok && all != nil && (s.replicas > 0 || goneUnnoticed(all)) {
		c.ReloadState(ctx) // another node may be the master
	}
	for _, cmd := range cmds {
		reply, err := cmd.Result()
		if err == nil && reply != nil {
			err = short
		}
		if err == nil && reply == nil {
			// A connection that the server refused to set up (a wrong password)
			// leaves a pipeline's commands without an answer.
			err = cmp.Or(all, ErrReply)
		}
		if shut != nil && errors.Is(err, io.EOF) {
			err = shut
		} else if err = explain(err); unauthenticated(err) {
			shut = err // the server closes the connection on the commands behind it
		}
		cmd.answer(reply, err)
	}
}

// command is an EVALSHA or EVAL that the client does not send again by itself,
// whatever its options say: after a time-out it would arrive when the caller
// is long gone and has released what it asked for.
type command struct {
	*redis.Cmd
	calls []*Call
}

func (*command) NoRetry() bool { return true }

// Args is what the client asks for when it writes. A call that was given up before
// is not sent even then, by a hook that goes on after its caller: PING is.
func (c *command) Args() []any {
	for _, call := range c.calls {
		if !call.fate.CompareAndSwap(unsent, sent) && call.fate.Load() == void {
			return []any{"ping"}
		}
	}
	return c.Cmd.Args()
}

func (c *command) Clone() redis.Cmder { return &command{c.Cmd.Clone().(*redis.Cmd), c.calls} }

// together counts the calls at the front that one command carries.
func together(calls []*Call, size int) int {
	n := 1
	for calls[0].Script.Batch && n < min(len(calls), size) && calls[n].Script.Batch {
		n++
	}
	return n
}

func newCommand(ctx context.Context, calls []*Call, text bool) *command {
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
	cmd := &command{redis.NewCmd(ctx, args...), calls}
	cmd.SetFirstKeyPos(3)
	return cmd
}

// answer deals out the reply of a script.
func (c *command) answer(reply any, err error) {
	if err != nil || !c.calls[0].Script.Batch {
		for _, call := range c.calls {
			call.Reply, call.Err = reply, err
			if err != nil && call.Script.Fault != nil {
				call.Err = call.Script.Fault(call, err)
			}
		}
		return
	}
	answers, _ := reply.([]any)
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
func (s *Sender) replicate(ctx context.Context, cmds []*command) (short, all error) {
	rdb, wait := s.rdb, replicaTime
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(at)*3/4)
	}
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		node, err := c.MasterForKey(ctx, cmds[0].calls[0].Keys[0].(string))
		if err != nil {
			return err, err
		}
		rdb, wait = node, shorter(wait, c.Options().ReadTimeout)
	case *redis.Client:
		wait = shorter(wait, c.Options().ReadTimeout)
	}
	p := rdb.Pipeline()
	for _, cmd := range cmds {
		_ = p.Process(ctx, cmd) // is queued only: its outcome is the command's own
	}
	confirmed := redis.NewIntCmd(ctx, "wait", s.replicas, max(wait.Milliseconds(), 1)) // 0: for ever
	_ = p.Process(ctx, confirmed)
	_, all = p.Exec(ctx)
	n, err := confirmed.Result()
	if err == nil && int(n) < s.replicas {
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
