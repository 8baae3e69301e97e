-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- One request of kind p or b of a node, when it travels alone and nobody is in
-- its way: what batch.lua does, in a third of the time. KEYS and ARGV are those
-- of batch.lua, and so is the answer; nil instead of it means that nothing was
-- done, and that batch.lua is to be asked. See node.lua and fences.lua for the
-- rules, lasting.lua for the expiry.

<<template "marker" .>>

local call, sub, value = redis.call, string.sub, ARGV[3]

if ARGV[2] == 'b' then
  local got = call('MGET', KEYS[4], KEYS[5])
  local grant = got[2]
  if call('EXISTS', KEYS[6]) == 1 then return {false} end
  if got[1] and <<shared "got[1]">> then return {false} end
  if got[1] ~= value then -- neither a lease nor a place, unless one was handed over
    if grant and (<<owner "grant">> == <<owner "value">> or <<shared "grant">>) then return {false} end
    return {0, ''}
  end
  if not grant or <<fence "grant">> > ARGV[4] then return {false} end
  call('DEL', KEYS[4])
  call('SET', KEYS[5], sub(grant, 1, 58) .. 'F', 'KEEPTTL')
  return {1, ''}
end

local got = call('MGET', KEYS[2], KEYS[5], KEYS[3], KEYS[1], KEYS[4])
local record, was, mark, cur = got[1], got[2], got[3], got[5]
if not record or <<recordWord "record">> ~= 'ok ' or not mark or #mark ~= 67 or got[4] or
  not string.find(call('INFO', 'server'), '\nrun_id:' .. <<recordRun "record">> .. '\r', 1, true) or
  call('EXISTS', KEYS[6], KEYS[8]) > 0 then
  return {false}
end

local clock = call('TIME')
local stamp = clock[1] .. sub('000000' .. clock[2], -6)
local ttl, h, most = tonumber(ARGV[4]), ARGV[5], tonumber(<<recordMost "record">>)
local age, lead = stamp - <<markAt "mark">>, h - stamp
local least, told = <<markOld "mark">>, was and <<fence "was">>
if told and told > least then least = told end
if not most or ttl > most or age < 0 or age >= <<.Turn>> then return {false} end
if cur then
  if cur == value or <<shared "cur">> then return {false} end
  return {{0, sub(cur, 1, 600), call('PTTL', KEYS[4]), 0, was and <<head "was">> or '', 0, least}, <<recordLife "record">>}
end
if lead > <<.Lead>> or h <= least or h > <<markCur "mark">> or was and sub(was, 59) ~= 'F' or call('EXISTS', KEYS[4]) == 1 then
  return {false}
end
local px = ttl + math.max(<<.Keep>>, most)
if lead > 0 then px = px + math.ceil(lead / 1000) end
call('SET', KEYS[4], value, 'PX', ttl)
call('SET', KEYS[5], <<grant "value" "h" "ARGV[6]">>, 'PX', px)
return {h, <<recordLife "record">>}
