-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Who gets a hint to look after others: included after queue.lua.

-- placesAt reads places, by rank.
local function placesAt(from, to)
  local ids, owners = call('ZRANGE', K.queue, from, to), {}
  if #ids == 0 then return ids, ids end
  for i = 1, #ids do owners[i] = <<owner "ids[i]">> end
  return ids, call('HMGET', K.places, unpack(owners))
end

-- hintLast asks for the next in the queue where a search was cut short: a hint goes to the one
-- with the latest sign of life among the last in the queue, which goes on with it.
local function hintLast()
  local ids, places = placesAt(-100, -1)
  local last
  for i = 1, #ids do
    if places[i] and (not last or places[i] > places[last]) then last = i end
  end
  local e = last and entry(ids[last], nil, places[last])
  if e and e.mode and e.mode ~= 'p' then notify(e) end
end

-- hintLater has whoever is first in the queue now look after px ms: nobody else would see
-- that a key which was handed off is not claimed, or when the lease of one who
-- has it now expires. Where it gave no sign of life of late, it is one of those
-- behind it that did. A place that polls looks anyway.
function hintLater(px)
  local e, _, at = first(false, false)
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
  if e and e.mode ~= 'p' then notify(e, string.format('%d', math.min(px, <<.Day>>))) end
end

-- hintFirst has whoever is first in the queue now look after the holder, or to take the key.
local function hintFirst()
  local e, why = first(false, false)
  if e and e.mode ~= 'p' then notify(e) end
  if why == 'more' then hintLast() end
end
