// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/cmd/hasp/internal/leaks"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

// leaksCommand is what hasp leaks was asked for.
type leaksCommand struct {
	store  base.StoreFlag
	prefix string
	older  base.Duration
	fix    bool
	yes    bool
	json   bool
	reason string
	audit  base.AuditFlag
	keys   []string                         // only these; and they are named
	remark func(format string, args ...any) // says what else there is to know

	l   *base.Locks
	log *audit.Log
}

func newLeaks() *cobra.Command {
	c := &leaksCommand{remark: base.Note}
	output := base.Outputs()
	cmd := &cobra.Command{
		Use:   "leaks [KEY...]",
		Short: "Find locks, and what belongs to them, that nobody will end",
		Long:  leaksLong,
		Example: `  hasp leaks
  hasp leaks --prefix orders/ --older 15m
  hasp leaks -o json | jq 'select(.what == "overdue") | .key'
  hasp leaks --fix                             shows what it would remove, and asks
  hasp leaks --fix --audit removed.log --reason "crash of batch1, OPS-4711"
  hasp leaks --fix --yes old-importer          a lock of another program, which you know to be gone`,
		RunE: func(cmd *cobra.Command, keys []string) (err error) {
			if c.keys, err = base.Distinct(keys); err != nil {
				return err
			}
			c.json = output.JSON()
			return c.run(cmd)
		},
	}
	cmd.ValidArgsFunction = c.store.CompleteKeys
	cmd.Flags().StringVar(&c.prefix, "prefix", "", "look only at keys that start with this `TEXT`")
	cmd.Flags().Var(&c.older, "older", "what is held for longer than this, such as 15m, is overdue, whatever is usual")
	cmd.Flags().BoolVar(&c.fix, "fix", false, "show what is found, ask, and remove what may be removed")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "with --fix: do not ask")
	output.AddOutput(cmd, "lines, or objects, one a line")
	cmd.Flags().StringVar(&c.reason, "reason", "", "with --fix: `TEXT` that says why, for the audit record")
	c.audit.Add(cmd, "record what --fix removes")
	c.store.Add(cmd)
	return cmd
}

func (c *leaksCommand) run(cmd *cobra.Command) error {
	switch {
	case c.yes && !c.fix:
		return base.Usage("--yes answers the question of --fix: give both")
	case c.audit.To != "" && !c.fix:
		return base.Usage("--audit records what --fix removes: give both")
	case c.reason != "" && !c.fix:
		return base.Usage("--reason says why --fix removes something: give both")
	case c.older.Given && c.older.D == 0:
		return base.Usage("--older=0s would call every lock overdue: give a longer time, such as 15m")
	case c.fix && !c.yes && !child.IsTerminal(os.Stdin):
		return base.Usage("standard input is no terminal, so nobody can be asked: give --yes to remove what hasp leaks shows without a question")
	}
	var err error
	if c.fix {
		if c.log, err = c.audit.Open(); err != nil {
			return err
		}
	}
	if c.l, err = c.store.Open(cmd, nil); err != nil {
		return err
	}
	defer c.l.Close()
	ctx, cancel := base.Listening()
	defer cancel()
	found, err := c.find(ctx)
	if err != nil {
		return err
	}
	if c.fix && !c.json || c.fix && !c.yes { // what is about to be done, before it is
		w := io.Writer(base.Stdout)
		if c.json {
			w = os.Stderr
		}
		if err := c.print(w, found); err != nil {
			return err
		}
	}
	if err := c.remove(ctx, found); err != nil {
		return err
	}
	if c.json {
		for _, f := range found {
			if err := plain.WriteJSON(base.Stdout, c.asJSON(f)); err != nil {
				return err
			}
		}
	} else if !c.fix {
		if err := c.print(base.Stdout, found); err != nil {
			return err
		}
	}
	return c.verdict(found)
}

// verdict is how it ends.
func (c *leaksCommand) verdict(found []*leak) error {
	left := 0
	for _, f := range found {
		if !f.removed {
			left++
		}
	}
	switch {
	case len(found) == 0:
		base.Note("nothing has leaked in %s", c.l.URL)
		return nil
	case left == 0:
		return nil
	case c.fix:
		return &base.Exit{Code: base.ExitLeaks, Verdict: "leaks", Message: fmt.Sprintf("%s in %s", people.Count(left, "leak is left", "leaks are left"), c.l.URL)}
	}
	return &base.Exit{Code: base.ExitLeaks, Verdict: "leaks", Message: fmt.Sprintf("%s in %s", people.Count(left, "leak", "leaks"), c.l.URL)}
}

// leak is one thing that was found.
type leak struct {
	what     string
	key      string
	name     string // in the store, of a sidecar or a place
	server   string // of several that grant locks together
	holder   hasp.Holder
	fence    uint64        // of a lease; 0: not known
	held     time.Duration // 0: not known
	left     time.Duration // as driver.Info has it
	usual    time.Duration // of an overdue one, 0: --older said so
	how      how
	by       operator.Operations // of the store that has it
	leftover *operator.Leftover  // nil: a lease that expires
	atWork   []string            // here, of what its holder ran, which has ended

	result  string        // what became of it
	removed bool          // or gets an expiry
	stays   time.Duration // for which it is kept nevertheless
}

// how says whether --fix removes something.
type how int

const (
	freely how = iota
	named      // only if the user named its key
	never      // its holder renews it, as far as hasp knows; or what it ran is at work
)

// What is found, in words for people and programs.
const (
	whatLease   = "lease"   // it has no expiry, and is not renewed
	whatLive    = "live"    // it has no expiry, but its holder renews it
	whatForeign = "foreign" // it has no expiry, and another program set it
	whatPlace   = "place"
	whatSidecar = "sidecar"
	whatOverdue = "overdue"
	whatEnded   = "ended"
)

// find finds what has leaked, sorted by key. With an error it returns what it had found until then.
func (c *leaksCommand) find(ctx context.Context) ([]*leak, error) {
	ages := leaks.NewAges(c.older.D)
	found, err := c.walk(ctx, ages)
	if err == nil {
		var overdue []*leak
		overdue, err = c.overdue(ctx, ages)
		found = append(found, overdue...)
	}
	spare(found)
	slices.SortStableFunc(found, func(a, b *leak) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.what, b.what), cmp.Compare(a.server, b.server), cmp.Compare(a.name, b.name), cmp.Compare(a.holder.Owner, b.holder.Owner))
	})
	return slices.CompactFunc(found, func(a, b *leak) bool { // a store may name one twice
		return a.server == b.server && a.what == b.what && a.key == b.key && a.name == b.name && a.holder.Owner == b.holder.Owner
	}), err
}

// spare keeps --fix from leases under which something works on though the holder has ended.
func spare(found []*leak) {
	var work map[string][]string // looked at only where a holder has ended
	for _, f := range found {
		if !people.Ended(f.holder) {
			continue
		}
		if work == nil {
			work = child.AtWork()
		}
		if f.atWork = work[f.holder.Owner]; len(f.atWork) > 0 {
			f.how = never
		}
	}
}

// walk finds all but the overdue, and fills in ages.
func (c *leaksCommand) walk(ctx context.Context, ages *leaks.Ages) (found []*leak, err error) {
	held := func(i hasp.Info) {
		since := sinceOf(i.Holder)
		if since > 0 && !people.Kept(i.Holder) {
			ages.Add(i.Key, since)
		}
		if people.Ended(i.Holder) && c.names(i.Key) {
			found = append(found, &leak{what: whatEnded, key: i.Key, holder: i.Holder, fence: i.Fence, held: since, left: i.Left, how: named})
		}
	}
	sweepers := c.sweepers()
	for _, s := range sweepers {
		for left, err := range s.ListLeftovers(ctx, c.prefix, held) {
			if err != nil {
				return found, c.trouble(err)
			}
			if c.names(left.Key) {
				found = append(found, leakOf(left, s))
			}
		}
		held = nil // other servers have the same keys
	}
	if len(sweepers) == 0 {
		for info, err := range c.l.Operator().List(ctx, c.prefix) {
			if err != nil {
				return found, base.Trouble(c.l.URL, err)
			}
			if info.Held {
				held(info)
			}
		}
	}
	return found, nil
}

// sweeper finds what a store, or one server of several, has left over.
type sweeper struct {
	operator.Operations
	server string // of several, its name
}

// sweepers are those of the store; none where nothing can be left over.
func (c *leaksCommand) sweepers() (all []sweeper) {
	if o := operator.Of(c.l.Store.Driver); o.ListLeftovers != nil {
		return []sweeper{{o, ""}}
	}
	for _, server := range c.l.Store.Servers {
		if o := operator.Of(server.Driver); o.ListLeftovers != nil {
			all = append(all, sweeper{o, server.Name})
		}
	}
	return all
}

func (c *leaksCommand) trouble(err error) *base.Exit {
	return base.Trouble(c.l.URL, &hasp.Error{Op: "leaks", Engine: c.l.Traits().Engine, Class: c.l.Store.Classify(err), Err: err})
}

// sinceOf says for how long a holder has held a key, by our clock; 0: not known.
func sinceOf(h hasp.Holder) time.Duration {
	since := h.Since
	if since.IsZero() {
		since = h.Describe().Since
	}
	if since.IsZero() {
		return 0
	}
	return max(time.Since(since), 1)
}

// names says whether the findings of a key are wanted.
func (c *leaksCommand) names(key string) bool {
	return len(c.keys) == 0 || slices.Contains(c.keys, key)
}

func leakOf(l operator.Leftover, by sweeper) *leak {
	f := &leak{key: l.Key, server: by.server, holder: l.Holder, fence: l.Fence, by: by.Operations, leftover: &l}
	f.held = sinceOf(l.Holder)
	if l.Kind == operator.LeftLease {
		f.left = -1
	}
	switch {
	case l.Kind == operator.LeftPlace:
		f.what, f.name = whatPlace, l.Name
	case l.Kind == operator.LeftSidecar:
		f.what, f.name = whatSidecar, l.Name
	case l.Foreign():
		f.what, f.how = whatForeign, named
	case l.Live:
		f.what, f.how = whatLive, never
	default:
		f.what = whatLease
	}
	return f
}

// maxOverdue is how many overdue leases are looked at once more.
const maxOverdue = 1000

// overdue looks once more at those that have been held for too long: they may have been released since.
func (c *leaksCommand) overdue(ctx context.Context, ages *leaks.Ages) (found []*leak, err error) {
	late := ages.Overdue()
	if len(late) > maxOverdue {
		c.remark("%d keys are overdue: of these, the %d that have been held for longest are shown", len(late), maxOverdue)
		late = late[:maxOverdue]
	}
	for _, late := range late {
		if !c.names(late.Key) {
			continue
		}
		info, err := c.l.Inspect(ctx, late.Key)
		if err != nil {
			return found, err
		}
		if held := sinceOf(info.Holder); info.Held && held >= late.Held {
			found = append(found, &leak{what: whatOverdue, key: late.Key, holder: info.Holder, held: held, left: info.Left, usual: late.Usual, how: never})
		}
	}
	return found, nil
}

// removable says whether --fix may remove it.
func (c *leaksCommand) removable(f *leak) bool {
	return f.how == freely || f.how == named && len(c.keys) > 0 // all that is found was named then
}

// remove asks, and removes what may be removed.
func (c *leaksCommand) remove(ctx context.Context, found []*leak) error {
	var todo []*leak
	for _, f := range found {
		if f.result = "shown"; c.fix && c.removable(f) {
			todo = append(todo, f)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	if !c.yes {
		if err := base.Ask(fmt.Sprintf("To remove %s, type yes: ", people.Count(len(todo), "leak", "leaks")), "yes", "yes"); err != nil {
			return err
		}
	}
	for _, f := range todo {
		if err := c.removeOne(ctx, f); err != nil {
			return err
		}
		if !c.json {
			base.Note("%s %s: %s", f.what, base.Quote(f.key), f.outcome())
		}
	}
	return nil
}

// removeOne removes one leak, exactly as it was found, and has that recorded. Nothing else here removes anything.
func (c *leaksCommand) removeOne(ctx context.Context, f *leak) error {
	ctx, cancel := context.WithTimeout(ctx, base.AskLimit)
	defer cancel()
	var err error
	unwritten := (*audit.UnwrittenError)(nil)
	lost := errors.As(c.log.Do(c.recordOf(f), func() error {
		if f.leftover != nil {
			f.stays, err = f.by.RemoveLeftover(ctx, *f.leftover)
		} else {
			err = c.l.Operator().Break(ctx, f.key, f.holder.Owner)
		}
		return err
	}), &unwritten)
	end := (*base.Exit)(nil)
	switch {
	case lost && !unwritten.Tried:
		return base.Failed("%s %s was not removed: %v", f.what, base.Quote(f.key), unwritten)
	case errors.Is(err, hasp.ErrNotHeld):
		f.result = "changed"
	case err != nil && f.leftover != nil:
		end = c.trouble(err)
	case err != nil:
		end = base.Trouble(c.l.URL, err)
	case f.stays > 0:
		f.result, f.removed = "expires", true
	default:
		f.result, f.removed = "removed", true
	}
	switch {
	case lost && end == nil:
		return base.Failed("%s %s: %s; but %v", f.what, base.Quote(f.key), f.outcome(), unwritten)
	case lost:
		end.Message += fmt.Sprintf("; and %v", unwritten)
		return end
	case end != nil:
		return end
	}
	return nil
}

// outcome says what became of it.
func (f *leak) outcome() string {
	switch f.result {
	case "changed":
		return "it changed since it was shown, and nothing was done"
	case "expires":
		return fmt.Sprintf("it has an expiry now, and is gone in %s unless somebody renews it", people.Short(f.stays))
	}
	return "removed"
}

// recordOf is what is recorded of the removal of a leak; a lease that expires is broken.
func (c *leaksCommand) recordOf(f *leak) audit.Record {
	r := audit.Record{Event: audit.Remove, Via: "hasp leaks", By: audit.Self(), Store: c.l.URL.String(), Server: f.server, What: f.what, Name: f.name, Reason: c.reason}
	if f.leftover == nil {
		r.Event = audit.Break
	}
	return r.Victim(f.key, f.holder, f.fence, f.what == whatPlace)
}
