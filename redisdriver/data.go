// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// DataError is something in the store that hasp did not write and cannot go on
// from: a number that was edited, restored from elsewhere, or is used up. Nothing
// is granted then, since fences might not rise, or a line have no order.
type DataError struct {
	Key  string // what holds it, as Redis calls it; "" when it is the server's clock
	Text string // what it holds, or what is wrong with it
	hint string
}

func (e *DataError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("redis: the server's clock (TIME: %s µs) is centuries ahead, and fences would be used up: set it right", e.Text)
	}
	return fmt.Sprintf("redis: key %q: %q is not what hasp left there, or no larger number is left: %s", e.Key, e.Text, e.hint)
}

// dataFault matches what `counted` in common.lua says, faultyScript a script that met something
// else than it expects.
var (
	dataFault    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`HASPDATA (\w+) (.*?)(?: script: .*)?$`) })
	faultyScript = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:ERR )?(?:@?user_script: ?\d+: )+(.*?)(?: script: .*)?$`)
	})
)

// foreign finds out whether a request of the batch script failed for what the
// store holds, and names the key.
func (c *call) foreign(err error) error {
	text := wrapped().ReplaceAllString(err.Error(), "")
	lock, grant, line := fmt.Sprint(c.keys[0]), fmt.Sprint(c.keys[1]), fmt.Sprint(c.keys[2])
	const fence = "restore it; or delete it, if nothing compares new fences with earlier ones"
	if m := dataFault().FindStringSubmatch(text); m != nil {
		e := &DataError{Text: m[2], hint: fence}
		switch m[1] {
		case "clock":
		case "mark":
			e.Key = c.mark
		case "proposed":
			e.Key = proposedKey
		case "held":
			e.Key, e.hint = sidecars+"held:"+strings.TrimPrefix(line, sidecars+"line:"), "delete what is not a lease from it"
		case "line":
			e.Key, e.hint = line, "delete it, and those who wait join again"
		default:
			e.Key, e.hint = grant, "delete it once nobody holds the lock"
		}
		return e
	}
	if m := faultyScript().FindStringSubmatch(text); m != nil {
		return &DataError{Key: lock, Text: m[1], hint: fmt.Sprintf("something beside it was edited: look at %q and the names like it", grant)}
	}
	return err
}
