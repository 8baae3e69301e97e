-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A Try for a fair lock.
-- KEYS: lock, about, queue, timeouts, waiters, gone
-- ARGV: ttl, keep (ms), field, label, patience (ms; '' to stay out of the queue), PUBLISH or SPUBLISH, channel
-- Replies: {1, fence, how many fences, ms that it lasts} granted; {0, {holder's field, about it}, PTTL, places before it, in how many ms
-- to look without a message} held;
-- {2} released; {-1, key, type} a key of another type

local goneKey = KEYS[6]
local ttl, keep, field, label, patience, how, channel = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local other = strange()
if other then
  return other
end
if call('EXISTS', goneKey) == 1 then
  return { 2 }
end
local now, us = clock()
tidy(now)
if call('HEXISTS', lockKey, field) == 1 and mine(aboutKey, field, label) then
  outlive(aboutKey, keep)
  return { 1, '0', 1, prolong(lockKey, ttl) }
end
local w = waiter(field)
local first = call('LINDEX', queueKey, 0)
local stranger = w and w.label ~= label
if call('EXISTS', lockKey) == 0 and not stranger and (not first or first == field) then
  call('HINCRBY', lockKey, field, 1)
  bound(lockKey, ttl)
  note(aboutKey, field, label, now, '0', keep)
  if first then
    leave(field, w or { added = 0 }) -- what was known of it may be gone
  end
  hint(how, channel, field)
  return { 1, '0', 1, ttl }
end
local at
if patience ~= '' and not stranger then
  at = stay(field, w or { new = true, life = 0, joined = text(us), added = tonumber(patience), label = label }, now, tonumber(patience))
end
hint(how, channel, field)
local before = at or call('LPOS', queueKey, field) or call('LLEN', queueKey)
return { 0, holder(lockKey, aboutKey), call('PTTL', lockKey), before, at and look(at, now) or 0 }
