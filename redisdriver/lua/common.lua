-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- What several scripts have: each includes the parts that it needs.

--# part clock
local stamp, millis -- the server's clock, for the whole script: us, 16 digits until 2286; ms, 13 digits
local ms -- as a number, where it is needed
local function look()
  local clock = call('TIME')
  local us = clock[2] .. '' -- a number on some servers
  if #us < 6 then us = sub('000000' .. us, -6) end
  stamp = clock[1] .. us
  millis = F.millis(stamp)
end
--# end part

--# part counted
-- counted reads one of ours, and goes no further with what we cannot have
-- written, or when it is used up. See DataError for where.
local function counted(where, text, over)
  if over or text == '' or #text > 16 or string.find(text, '%D') or tonumber(text) >= F.Most then
    error('HASPDATA ' .. where .. ' ' .. string.gsub(sub(text, 1, 40), '[^%w%p ]', '?'), 0)
  end
  return tonumber(text)
end
--# end part

--# part later
-- later moves an expiry, but never to an earlier moment. What never expires
-- stays so: only a person can have made it so.
local function later(key, px)
  if redis.REDIS_VERSION_NUM then -- since 7.0, like GT
    return call('PEXPIRE', key, px, 'GT')
  end
  local left = call('PTTL', key)
  return left >= 0 and left < tonumber(px) and call('PEXPIRE', key, px) or 0
end
--# end part

--# part run
-- The run id of this server, as a node record has it; nil where INFO has none, or
-- one of another form.
local run = string.match(call('INFO', 'server'), '\nrun_id:(' .. string.rep('%x', 40) .. ')\r')
--# end part

--# part room
-- The numbered places of those that share a key with a limit. Each number that
-- was ever given out is a member of room; the two ends of the set are what is asked
-- for: at the front the smallest limit, at the back the smallest free number.

-- smallest answers the smallest limit, math.huge for none, and whether there
-- are numbers.
local function smallest()
  local front = call('ZRANGE', K.room, 0, 0, 'WITHSCORES')
  local limit = tonumber(front[2] or F.Free)
  return limit < F.Free / 2 and limit or math.huge, #front > 0
end

-- opens answers whose lease must end before one of that limit (nil: Exclusive) can
-- have the key beside n others, the smallest limit among which is least, and when it
-- does; or, when it can now, who will be the last to end.
local function opens(limit, n, least)
  local room = limit and math.min(least, limit > 0 and limit or math.huge)
  local at = room and n < math.huge and n >= room and n - room or -1
  local last = call('ZRANGE', K.shares, at, at, 'WITHSCORES')
  return last[1], tonumber(last[2])
end
--# end part
