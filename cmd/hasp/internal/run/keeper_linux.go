// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/spf13/cobra"
)

const (
	keeperName = "keeper" // the sub-command of the process that holds keys for a shell
	keeperPipe = 3        // the descriptor of its pipe from hasp acquire
)

// keeper holds keys for a shell until that ends.
type keeper struct {
	request request
	say     *json.Encoder // to hasp acquire
	taken   chan struct{} // closed when that took the keys
	gone    chan struct{} // closed when it ended, and did not
	shell   *child.Shell
	ended   <-chan struct{} // closed when the shell has
	job     *job
	leases  held
	asked   chan asked
}

func newKeeper() *cobra.Command {
	return &cobra.Command{
		Use: keeperName, Short: "The process that holds keys for a shell: for hasp itself", Hidden: true, Args: base.Exactly(0, ""),
		RunE: func(*cobra.Command, []string) error {
			pipe := os.NewFile(keeperPipe, "hasp acquire")
			orders := json.NewDecoder(pipe)
			k := &keeper{say: json.NewEncoder(pipe), taken: make(chan struct{}), gone: make(chan struct{}), asked: make(chan asked)}
			if orders.Decode(&k.request) != nil || len(k.request.Args) == 0 {
				return base.Usage("hasp %s is for hasp itself", keeperName)
			}
			go func() {
				if orders.Decode(new(bool)) == nil {
					close(k.taken)
				} else {
					close(k.gone)
				}
			}()
			cmd := newAcquire(k.request.Args, k)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs(k.request.Args[1:])
			return cmd.Execute()
		},
	}
}

// serve asks for the keys, and holds them. Once hasp acquire took them no process
// waits for our end: messages and hasp held report what goes wrong.
func (k *keeper) serve(cmd *cobra.Command, o *options, keys []string) (err error) {
	if k.shell, err = child.OpenShell(k.request.Shell); err != nil {
		return base.Usage("%v: a key can be held for a process of yours only", err)
	}
	k.ended = k.shell.Ended()
	if k.request.JobControl && !cmd.Flags().Changed("on-lost") {
		o.onLost.Word = lostIgnore // a user works at its prompt
	}
	j, stop := newJob(o, keys, []string{k.shell.Name()})
	defer stop()
	k.job = j
	go k.watch()
	_, err = j.opened(cmd, func() (*child.Status, error) { return nil, k.once() })
	return j.rep.verdict(nil, err)
}

// watch ends the wait for the keys, and for files, when the shell or hasp acquire ends.
func (k *keeper) watch() {
	select {
	case <-k.taken:
		return
	case <-k.ended:
	case <-k.gone:
	}
	select {
	case k.job.blocked <- k.job.interrupted(base.Signaled{Sig: syscall.SIGHUP}):
	default: // the wait is over for another reason
	}
}

// once waits for the keys, and holds them.
func (k *keeper) once() (err error) {
	j := k.job
	j.wait.begin()
	if k.leases, err = j.acquire(); err != nil {
		return err
	}
	socket, err := k.listen()
	if err == nil {
		if err = k.handOver(); err == nil {
			if lost := k.hold(socket); lost != nil {
				return j.unnoticed(lost, 0, "the shell ended")
			}
			return nil
		}
		_ = socket.Close()
	}
	_ = j.finish(k.leases.unused) // the leases expire when this fails
	return err
}

// handOver answers hasp acquire, and waits until that takes the keys.
func (k *keeper) handOver() error {
	j := k.job
	j.rep.out.flush(base.FlushLimit)
	if err := errors.Join(k.shell.LetGo(), os.Chdir("/")); err != nil {
		return base.Failed("%v", err)
	}
	_ = k.say.Encode(true) // when it is not read, hasp acquire is gone
	select {
	case <-k.taken:
		return nil
	case sig := <-j.signals:
		return j.interrupted(base.Signaled{Sig: sig.(syscall.Signal)})
	case <-k.gone:
	case <-k.ended:
	}
	return j.interrupted(base.Signaled{Sig: syscall.SIGHUP})
}

// hold holds the keys until the shell has ended, or wants them released. When they
// are lost it ends the shell. lost: as of job.release.
func (k *keeper) hold(socket net.Listener) (lost error) {
	j := k.job
	j.signals = nil // the shell has its own, and perhaps something left to do: only its end counts
	over := k.leases.Done()
	if j.o.onLost.Word == lostIgnore {
		over = nil
	}
	var end sync.WaitGroup
	ending := false
	for {
		select {
		case <-over:
			over, ending = nil, true
			end.Go(func() { k.shell.End(j.ending(k.leases, k.shell.PID)) })
		case <-k.ended:
			_ = socket.Close() // no shell is left to ask
			end.Wait()         // of what the shell started
			j.silent = k.leases.Err() != nil
			return j.release(k.leases)
		case q := <-k.asked:
			a, released := k.answer(q.question, socket, ending)
			_ = q.conn.SetDeadline(time.Now().Add(time.Second))
			_ = json.NewEncoder(q.conn).Encode(a) // the process that asked may be gone
			_ = q.conn.Close()
			if released {
				return nil
			}
		}
	}
}

// answer answers a question, and releases everything when it asks for that. It asks
// the clock whether the keys are held, not the store.
func (k *keeper) answer(q question, socket net.Listener, ending bool) (a reply, released bool) {
	j := k.job
	var rest []string
	for _, l := range k.leases.keys() {
		if len(q.Keys) > 0 && !slices.Contains(q.Keys, l.Key) {
			rest = append(rest, l.Key)
			continue
		}
		a.Keys = append(a.Keys, l.Key)
		if q.Print != "" {
			slot := 0
			if l.Slot != nil {
				slot = *l.Slot
			}
			a.Facts = append(a.Facts, map[string]string{
				"fence": fmt.Sprint(l.Fence), "owner": l.Owner, "slot": fmt.Sprint(slot), "abandoned": fmt.Sprint(l.Abandoned),
			}[q.Print])
		}
	}
	lost, failed := k.leases.Err(), error(nil)
	if lost == nil && j.left(k.leases) <= 0 {
		lost = errors.New("its time is over")
	}
	switch {
	case len(a.Keys) == 0:
		return a, false
	case q.Print == "fence" && !j.from.Traits().Fencing: // the caller wants to pass it on
		a.Code, a.Facts, a.Message = base.ExitConfig, nil, fmt.Sprintf("the locks of the store %s have no fences: %s is held without one", j.from, base.QuoteAll(a.Keys))
		return a, false
	case q.Release && len(rest) > 0:
		a.Code, a.Message = base.ExitUsage, fmt.Sprintf("%s was acquired together with %s, and is released together with it: name all of them", base.QuoteAll(a.Keys), base.QuoteAll(rest))
		return a, false
	case q.Release && !ending:
		released = true
		_ = socket.Close() // from now on nothing is held
		j.silent = lost != nil
		if failed = j.finish(k.leases.Release); lost == nil && errors.Is(failed, hasp.ErrLost) {
			lost = failed
		}
	}
	switch {
	case lost != nil:
		a.Facts, a.Code, a.Message = nil, base.ExitLost, fmt.Sprintf("LOST %s: %s", base.QuoteAll(a.Keys), reason(lost))
	case failed != nil:
		a.Code, a.Message = base.ExitUnreachable, fmt.Sprintf("%s could not be released: %s. The store keeps it until its TTL is over", base.QuoteAll(a.Keys), reason(failed))
	}
	return a, released
}

// asked is a question, and the connection on which its sender waits for the answer.
type asked struct {
	question
	conn net.Conn
}

// listen answers hasp held and hasp release. It removes what killed keepers left
// behind: a socket that refuses, with no keeper that is just about to listen.
func (k *keeper) listen() (net.Listener, error) {
	shells, err := store.OpenShells()
	if err != nil {
		return nil, base.BadConfig(err)
	}
	names, _ := shells.Names() // those that can be read
	for _, name := range names {
		c, err := shells.Dial(name)
		if err == nil {
			_ = c.Close()
		}
		pid := 0
		if _, scan := fmt.Sscanf(name, socketName, new(int), new(uint64), &pid); scan == nil && errors.Is(err, syscall.ECONNREFUSED) && syscall.Kill(pid, 0) != nil {
			shells.Remove(name)
		}
	}
	l, err := shells.Listen(fmt.Sprintf(socketName, k.shell.PID, k.shell.Start, os.Getpid()))
	if err != nil {
		return nil, base.BadConfig(fmt.Errorf("hasp held and hasp release could not find the one who holds the key: %w", err))
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil { // it was closed
				return
			}
			q := asked{conn: c}
			_ = c.SetDeadline(time.Now().Add(time.Second)) // a caller sends its question at once
			if json.NewDecoder(c).Decode(&q.question) != nil {
				_ = c.Close()
				continue
			}
			k.asked <- q
		}
	}()
	return l, nil
}
