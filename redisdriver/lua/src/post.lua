-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Who is told to look after others: included after line.lua.

-- some reads places, by rank.
local function some(from, to)
  local ids, owners = call('ZRANGE', K.queue, from, to), {}
  if #ids == 0 then return ids, ids end
  for i = 1, #ids do owners[i] = <<owner "ids[i]">> end
  return ids, call('HMGET', K.places, unpack(owners))
end

-- hail asks for the next in line where a search was cut short: it tells the one
-- with the latest sign of life among the last in line, which goes on with it.
local function hail()
  local ids, places = some(-100, -1)
  local last
  for i = 1, #ids do
    if places[i] and (not last or places[i] > places[last]) then last = i end
  end
  local e = last and entry(ids[last], nil, places[last])
  if e and e.mode and e.mode ~= 'p' then notify(e) end
end

-- post has whoever is first in line now look after px ms: nobody else would see
-- that a key which was handed over is not claimed, or when the lease of one who
-- has it now expires. Where it gave no sign of life of late, it is one of those
-- behind it that did. A place that polls looks anyway.
function post(px)
  local told, _, at = first(false, false)
  if told and told.contact + told.patience / 2 <= ms then
    local ids, places = some(at + 1, at + 3)
    for i = 1, #ids do
      local e = places[i] and entry(ids[i], nil, places[i])
      if e and e.contact and e.contact + e.patience / 2 > ms then
        told = e
        break
      end
    end
  end
  if told and told.mode ~= 'p' then notify(told, string.format('%d', math.min(px, <<.Day>>))) end
end

-- lead tells whoever is first in line now to look after the holder, or to take the key.
local function lead()
  local e, why = first(false, false)
  if e and e.mode ~= 'p' then notify(e) end
  if why == 'more' then hail() end
end
