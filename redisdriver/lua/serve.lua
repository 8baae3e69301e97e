-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Who has the key next, and who gets a hint to look after others. Included after key.lua.

-- handTo hands the key to a place in the queue, alone or beside others, for its claim time.
-- It is false when there is no fence to be had because of what stands in the store.
-- One that proposes brings its fence when it claims the key.
local function handTo(e)
  local fence, state = known.newest or '0000000000000000', 'C'
  if e.fence then
    fence, state = e.fence, 'c'
  elseif e.how ~= 'P' then
    local ok, got = pcall(mint, 1, known.newest)
    local text = not ok and (type(got) == 'table' and got.err or got)
    if text and not string.find(text, 'HASPDATA', 1, true) then error(got, 0) end
    if text then return false end
    fence, state = got, 'c'
  end
  unqueue(e.value)
  give(e.value, fence, state, e.limit, e.claim, e.number .. ' ' .. e.place)
  handed = math.max(handed or 0, e.claim)
  return true
end

-- offer answers what a hint says to a place that can have the key, nil when it can't. To one that enters it is
-- "=<fence> <us> <claim> <token> ", and a ! behind the claim where a previous holder did not finish: its
-- lease, which began at that time of the clock. No message has said the token before: who can only publish does not know it.
local function offer(e)
  if not fits(e.limit) then return nil end
  if sub(e.how, 1, 1) ~= 'E' then return '' end
  local ok, fence = pcall(mint, 1, known.newest)
  if not ok then return '' end -- handTo finds out why
  e.fence = fence
  return '=' .. fence .. ' ' .. stamp .. ' ' .. e.claim .. (known.mark and '! ' or ' ') .. sub(e.how, 2) .. ' '
end

-- serve hands the key to those at the front of the queue that can have it, up to me.
-- Answers what it stopped at and why: nil, nobody is left; me; a place and
-- 'shut', it does not fit; 'poor', there is no fence for it; 'mute' and 'more' as of first.
local function serve(me)
  local at
  for _ = 1, 32 do
    local e, why, behind
    e, why, at, behind = first(me, offer, at)
    if not e or why or e.value == me then return e, why end
    if not fits(e.limit) then return e, 'shut' end
    if not handTo(e) then return e, 'poor' end
    if not known.shared then
      follower = behind
      return e, 'shut'
    end
  end
  return nil, 'more'
end

-- placesAt reads places, by rank.
local function placesAt(from, to)
  local ids, owners = call('ZRANGE', K.queue, from, to), {}
  if #ids == 0 then return ids, ids end
  for i = 1, #ids do owners[i] = F.owner(ids[i]) end
  return ids, call('HMGET', K.places, unpack(owners))
end

-- hintLast asks for the next in the queue where a search was cut short: a hint goes to the one
-- with the latest sign of life among the last in the queue, which goes on with it.
local function hintLast()
  local ids, places = placesAt(-100, -1)
  local last
  for i = 1, #ids do
    if places[i] and not (F.newer(places[i])) and (not last or places[i] > places[last]) then last = i end
  end
  local e = last and entry(ids[last], nil, places[last])
  if e and e.mode and e.mode ~= 'p' then notify(e) end
end

-- hintLater has whoever is first in the queue now look after px ms: nobody else would see
-- that a key which was handed off is not claimed, or when the lease of one who
-- has it now expires. Where it gave no sign of life of late, it is one of those
-- behind it that did. A place that polls looks anyway.
function hintLater(px)
  local e, _, at = follower, nil, follower and follower.at
  if not e then e, _, at = first(false) end
  if e and e.contact + e.patience / 2 <= ms then
    local ids, places = placesAt(at + 1, at + 3)
    for i = 1, #ids do
      local next = places[i] and entry(ids[i], nil, places[i])
      if next and next.contact and next.contact + next.patience / 2 > ms then
        e = next
        break
      end
    end
  end
  if e and e.mode ~= 'p' then notify(e, '+' .. string.format('%d', math.min(px, F.Day)) .. ' ') end
end

-- hintFirst has whoever is first in the queue now look after the holder, or to take the key.
local function hintFirst()
  local e, why = first(false)
  if e and e.mode ~= 'p' then notify(e) end
  if why == 'more' then hintLast() end
end

-- serveMore is serve for those behind one that is served.
local function serveMore()
  local e, why = serve(false)
  if why == 'more' and not handed then hintLast() end
  return e, why
end
