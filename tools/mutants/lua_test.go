// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
)

func TestMutateLua(t *testing.T) {
	source := `-- a comment with if x == y then
local function fits(limit)
  if n == 0 or 'and' == F.owner(a) then return true end
--# if node
  local low = limit and limit < f(a, b < c) or false
  other = not low
--# end
  return limit ~= nil and (limit == 0 or n < limit)
end
`
	want := []string{
		`3 fits: n == 0 or 'and' == F.owner(a) -> not (n == 0 or 'and' == F.owner(a))`,
		`3 fits: n == 0 -> n ~= 0`,
		`3 fits: n == 0 or 'and' == F.owner(a) -> n == 0 and 'and' == F.owner(a)`,
		`3 fits: n == 0 or 'and' == F.owner(a) -> 'and' == F.owner(a)`,
		`3 fits: n == 0 or 'and' == F.owner(a) -> n == 0`,
		`3 fits: 'and' == F.owner(a) -> 'and' ~= F.owner(a)`,
		`5 fits: limit and limit < f(a, b < c) -> limit or limit < f(a, b < c)`,
		`5 fits: limit and limit < f(a, b < c) -> limit < f(a, b < c)`,
		`5 fits: limit and limit < f(a, b < c) -> limit`,
		`5 fits: limit < f(a, b < c) -> limit <= f(a, b < c)`,
		`5 fits: limit < f(a, b < c) -> limit >= f(a, b < c)`,
		`5 fits: b < c -> b <= c`,
		`5 fits: b < c -> b >= c`,
		`5 fits: limit and limit < f(a, b < c) or false -> limit and limit < f(a, b < c) and false`,
		`5 fits: limit and limit < f(a, b < c) or false -> false`,
		`5 fits: limit and limit < f(a, b < c) or false -> limit and limit < f(a, b < c)`,
		`6 fits: not low -> low`,
		`8 fits: limit ~= nil -> limit == nil`,
		`8 fits: limit ~= nil and (limit == 0 or n < limit) -> limit ~= nil or (limit == 0 or n < limit)`,
		`8 fits: limit ~= nil and (limit == 0 or n < limit) -> (limit == 0 or n < limit)`,
		`8 fits: limit ~= nil and (limit == 0 or n < limit) -> limit ~= nil`,
		`8 fits: limit == 0 -> limit ~= 0`,
		`8 fits: limit == 0 or n < limit -> limit == 0 and n < limit`,
		`8 fits: limit == 0 or n < limit -> n < limit`,
		`8 fits: limit == 0 or n < limit -> limit == 0`,
		`8 fits: n < limit -> n <= limit`,
		`8 fits: n < limit -> n >= limit`,
	}
	var got []string
	for _, m := range mutateLua("a.lua", source) {
		got = append(got, m.String()[len("a.lua:"):])
		if m.text == source {
			t.Errorf("nothing is changed: %s", m)
		}
	}
	for _, m := range want {
		if !slices.Contains(got, m) {
			t.Errorf("no mutant %s", m)
		}
	}
	for _, m := range got {
		if !slices.Contains(want, m) {
			t.Errorf("a mutant %s", m)
		}
	}
}
