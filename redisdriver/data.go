// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

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

// dataFault matches what `counted` in common.lua says.
var dataFault = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`HASPDATA (\w+) (.*?)(?: script: .*)?$`) })

// dataError finds out whether a request of the batch script failed for what the
// store holds, and names the key.
func dataError(c *wire.Call, err error) error {
	text := wire.Wrapped().ReplaceAllString(err.Error(), "")
	lock, grant, queue := fmt.Sprint(c.Keys[0]), fmt.Sprint(c.Keys[1]), fmt.Sprint(c.Keys[2])
	const fence = "restore it; or delete it, if nothing compares new fences with earlier ones"
	if m := dataFault().FindStringSubmatch(text); m != nil {
		e := &DataError{Text: m[2], hint: fence}
		switch m[1] {
		case "clock":
		case "mark":
			e.Key = fmt.Sprint(c.Mark)
		case "proposed":
			e.Key = proposedKey
		case "held":
			e.Key, e.hint = wire.Sidecars+"held:"+strings.TrimPrefix(queue, wire.Sidecars+"queue:"), "delete what is not a lease from it"
		case "queue":
			e.Key, e.hint = queue, "delete it; the waiters join it again"
		default:
			e.Key, e.hint = grant, "delete it when nobody holds the lock"
		}
		return e
	}
	if m := wire.FaultyScript().FindStringSubmatch(text); m != nil {
		return &DataError{Key: lock, Text: m[1], hint: fmt.Sprintf("data beside it was edited: look at %q and the keys with similar names", grant)}
	}
	return err
}
