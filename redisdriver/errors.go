// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// classify returns the class of an error.
func classify(err error) driver.Class {
	var data *DataError
	var later *LayoutError
	if errors.As(err, &data) || errors.As(err, &later) {
		return driver.ClassImpossible
	}
	return wire.Classify(err)
}

// ReplicasError reports that fewer replicas (Got) than [Options].Replicas (Want) confirmed a request in time, so that a failover may
// undo it. A requested lease is not granted then, and a lease that was to be renewed lasts no longer.
type ReplicasError = wire.ReplicasError

// TypeError reports a lock key (Key, as Redis calls it) that holds another type of Redis value (Type), which is left
// unchanged.
type TypeError = wire.TypeError

// SentinelsError reports that none of the Sentinels of a failover client said which server is the master: they cannot be reached,
// or refused the login, which is another than that of the servers.
type SentinelsError = wire.SentinelsError

// Explained is an error of a go-redis client in words of this package, where go-redis's mislead.
func Explained(err error) error { return wire.Explained(err) }

// DataError reports data in the store that hasp did not write and cannot work with: a
// number that was edited, restored from elsewhere, or is used up. Nothing is granted
// then, since fences might not rise, or a queue might lose its order.
type DataError struct {
	Key  string // what holds it, as Redis calls it; "" when it is the server's clock
	Text string // what it holds, or what is wrong with it
	hint string
}

func (e *DataError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("redis: the server's clock (TIME: %s µs) is centuries ahead, which would use up all fences: set it right", e.Text)
	}
	return fmt.Sprintf("redis: key %q: %q is not what hasp wrote there, or there is no larger number: %s", e.Key, e.Text, e.hint)
}

// LayoutError reports a record (Key, as Redis calls it) of a later Layout than this build knows. It was left as it is, and nothing was
// granted, renewed or released beside it.
type LayoutError struct {
	Key    string
	Layout int
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("redis: key %q was written by a newer hasp (layout %d; this build knows %d): upgrade this program", e.Key, e.Layout, knownLayout)
}

// knownLayout is the layout of what the scripts write. The texts of the first have no number; those of each later one begin with it.
const knownLayout = 1

// laterText matches what a text of a later layout begins with, in Go and in Lua.
const laterText = "^v[1-9]"

var laterLayout = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(laterText + `\d*`) })

// strange is the error of a text that hasp wrote there only if it is a newer one.
func strange(key, text, hint string) error {
	if v := laterLayout().FindString(text); v != "" {
		layout, _ := strconv.Atoi(v[1:])
		return &LayoutError{Key: key, Layout: layout}
	}
	return &DataError{Key: key, Text: text, hint: hint}
}

// newer is that error of a text that says so, else nil.
func newer(key, text string) error {
	var later *LayoutError
	if err := strange(key, text, ""); errors.As(err, &later) {
		return later
	}
	return nil
}

// dataFault matches what `counted` in common.lua says.
var dataFault = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`HASPDATA (\w+) (.*?)(?: script: .*)?$`) })

const strangePlace = "upgrade this program if a newer hasp waits for the lock; else delete it, and the waiters join again"

// dataError finds out whether a request failed for what the
// store holds, and names the key.
func dataError(c *wire.Call, err error) error {
	text := wire.Wrapped().ReplaceAllString(err.Error(), "")
	const fence = "restore it; or delete it, if nothing compares new fences with earlier ones"
	if m := dataFault().FindStringSubmatch(text); m != nil {
		key, hint := "", fence
		switch m[1] {
		case "clock":
		case "mark":
			key = fmt.Sprint(c.Mark)
		case "proposed":
			key = proposedKey
		case "node":
			key = recordKey
		case "held":
			key, hint = fmt.Sprint(c.Keys[5]), "delete what is not a lease from it"
		case "queue":
			key, hint = fmt.Sprint(c.Keys[2]), "delete it; the waiters join it again"
		case "places":
			key, hint = fmt.Sprint(c.Keys[3]), strangePlace
		default:
			key, hint = fmt.Sprint(c.Keys[1]), "delete it when nobody holds the lock"
		}
		return strange(key, m[2], hint)
	}
	if m := wire.FaultyScript().FindStringSubmatch(text); m != nil && c.Script.Batch {
		lock, grant := fmt.Sprint(c.Keys[0]), fmt.Sprint(c.Keys[1])
		return &DataError{Key: lock, Text: m[1], hint: fmt.Sprintf("data beside it was edited: look at %q and the keys with similar names", grant)}
	}
	return err
}
