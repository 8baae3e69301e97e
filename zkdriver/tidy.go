// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"slices"
	"time"

	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// together is how many calls are sent at once, at most.
const together = 128

// remove deletes a node of ours after a while.
func (c *Conn) remove(after time.Duration, path string) {
	time.AfterFunc(after, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.trash = append(c.trash, path)
		c.tidy()
	})
}

// tidy gives up what is to be given up, in the background. The caller holds mu.
func (c *Conn) tidy() {
	switch {
	case c.closed || len(c.ending)+len(c.trash) == 0:
	case c.tidying:
		c.again = true
	default:
		c.tidying = true
		c.work.Go(func() {
			for c.tidyOnce() {
				continue
			}
		})
	}
}

// tidyOnce is false when nothing is left to do, or there is no connection: linked begins anew.
//
// It repeats what had no answer. That does no harm: the nodes are this session's own, and their names are never
// given again.
func (c *Conn) tidyOnce() (more bool) {
	s, err := c.session(c.life)
	c.mu.Lock()
	if err != nil || len(c.ending)+len(c.trash) == 0 {
		defer c.mu.Unlock()
		more, c.again = c.again && !c.closed, false
		c.tidying = more
		return more
	}
	es := slices.Clone(c.ending[:min(len(c.ending), together)])
	paths := slices.Clone(c.trash[:min(len(c.trash), together)])
	calls, unnamed := deletes(es)
	c.mu.Unlock()
	for _, path := range paths {
		calls = append(calls, zk.Delete(path))
	}
	if s.Do(c.life, calls...) != nil {
		return true
	}
	stays := make(map[*entry]bool) // could not be deleted
	var found []*zk.Call
	for _, e := range unnamed {
		n := len(e.folders)
		q, err := queueOf(e.folders, calls[1:1+n])
		stays[e] = err != nil
		calls = calls[1+n:]
		for _, n := range q {
			if n.is(e.mark) && n.sess == sessionName(s) {
				found = append(found, zk.Delete(e.dir+"/"+n.name))
			}
		}
	}
	for _, e := range es {
		if !slices.Contains(unnamed, e) {
			stays[e] = calls[0].Err != nil && !absent(calls[0].Err)
			calls = calls[1:]
		}
	}
	if s.Do(c.life, found...) != nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	done := func(e *entry) bool { return slices.Contains(es, e) }
	c.ending = slices.DeleteFunc(c.ending, done)
	c.trash = slices.DeleteFunc(c.trash, func(path string) bool { return slices.Contains(paths, path) })
	for _, e := range es {
		if stays[e] && e.gone {
			e.gone, e.leaving = false, false
			if e.granted {
				c.attend(e)
			}
			<-e.busy
			e.refs--
			c.last(e, time.Now().Add(tombTime)) // once more, then
			continue
		}
		c.gaveUp(e)
	}
	return true
}

// deletes is what deletes the nodes of some entries. Those without a known node come first: for each a barrier, and lists.
func deletes(es []*entry) (calls []*zk.Call, unnamed []*entry) {
	for _, e := range es {
		if e.name == "" {
			unnamed = append(unnamed, e)
			calls = append(append(calls, barrier(e.dir)), lists(e.dir, e.folders)...)
		}
	}
	for _, e := range es {
		if e.name != "" {
			calls = append(calls, zk.Delete(e.dir+"/"+e.name))
		}
	}
	return calls, unnamed
}

// gaveUp forgets a lease or a place that was given up. The caller holds mu.
func (c *Conn) gaveUp(e *entry) {
	if !e.gone {
		return // its session has ended since
	}
	if e.granted && !c.closed {
		e.tell()
	}
	e.clear()
	<-e.busy
	c.unref(e)
}
