-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- The queue of a key: included by the scripts that move it, after the clock and
-- after their fast paths, because a function costs its creation in every run.
--
-- K, the keys of one lock, all in one hash slot:
--   lock      string  "<owner> <label>", the canonical lock; SHARED and a
--                     stamp while it is shared, see key.lua
--   grant     string  who was granted what, see below
--   queue     zset    "<owner> <label>" -> number of the place
--   places    hash    owner -> place; "!" -> strikes
--   gone      string  this owner was released
-- and, of one that is shared, those that key.lua describes. Beside them:
--   mark      string  no smaller than any fence ever minted
--
-- grant:  owner(26) fence(16 digits) ms(13 digits) state
--         fence is the key's largest; H, M and C are h, m and c of a proposal
--         state h: held; m: held by one that may not PUBLISH; F: free, kept for the fence;
--         c: handed off, not claimed yet (C: the fence is of a previous holder, or 0)
--         f: free; s: shared, see key.lua; S: s, by one that may not PUBLISH
--         Behind the state a !: a previous holder did not finish; and, of c, C, f,
--         s and S, in the 16 digits after that, the largest fence that was granted
--         Exclusive; and, of c and C: <number> <place> <label>
--         Of h, m, H, M, s and S those 16 digits may be followed by the inboxes of holders that
--         asked to be told when somebody joins the queue, each after a blank: the last to ask is the first;
--         with a ~ before it where that one gives the key back then, unless somebody works under it
--         A grant that is left behind by a holder means that this one did not finish.
-- place:  contact(13 digits) patience claim mode inbox
--         contact is the server's ms of the last sign of life; patience and
--         claim are ms; mode p: polls; n: gets hints by PUBLISH; c: by PUBLISH, and
--         a count of 0 receivers means that nobody listens; N, C: by SPUBLISH;
--         and a P behind it: proposes fences; or an E and a token, hex: enters on the hint, see offer in serve.lua;
--         and S<limit>: will share the key;
--         and a !: it did not claim the key in time, and gave no sign of life since.
-- strikes: "<inbox> <ms>;" for each inbox that was handed a key, or sent a hint,
--         and did not answer. Its places that gave no sign of life since are
--         passed over, and keep their place until their patience is over.
-- "?" in places: "<number> <ms>": up to that place all are passed over, at that time.
--
-- entry is a place with its parts by name: how is P, E and its token, or '', missed ! or ''; strange: it is of
--         another layout, or of none that is known here, and its waiter may live.
--
-- This is layout 1. A text of a later one begins with v and its number, and stays as it is: see docs/design.md.

--# include later
-- outlast does the same for a sidecar, which may be new and have no expiry.
local function outlast(key, px)
  if later(key, px) == 0 and call('PTTL', key) == -1 then call('PEXPIRE', key, px) end
end

-- alive forgets up to where all are passed over, when one of them shows a sign of life.
local function alive(number, upTo)
  upTo = upTo or call('HGET', K.places, '?')
  if upTo and tonumber(number) <= tonumber(string.match(upTo, '^%S+')) then call('HDEL', K.places, '?') end
end
