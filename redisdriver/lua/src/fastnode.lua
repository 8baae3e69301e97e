-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

  if kind == 'd' or kind == 'b' then
    local got = call('MGET', lock, grant)
    local above = kind == 'b' and got[2] and <<fence "got[2]">> > ARGV[a]
    if got[1] == value and not above and call('EXISTS', line) == 0 then
      call('DEL', lock)
      if got[2] then call('SET', grant, sub(got[2], 1, 58) .. 'F', 'KEEPTTL') end
      return 1
    end
  elseif kind ~= 'r' and kind ~= 'u' and kind ~= 'x' then
    if not votes(KEYS[2]) then return {4} end
    if tonumber(ARGV[a]) > longest then return {5, longest} end
    if (kind == 'p' or kind == 'h' or kind == 'm') and call('EXISTS', lock, line, KEYS[keysAt + 4]) == 0 then
      local was = call('GET', grant)
      if not was or sub(was, 59) == 'F' then
        local told, fence, as = was and <<fence "was">>, ARGV[a + 1], ARGV[a + 2]
        if kind == 'p' then
          local ok, least = allow(fence, told, 1)
          if not ok then return {3, '', -2, 0, '', 0, least} end
          cover(fence)
        else
          fence, as = mint(1, told), kind
        end
        call('SET', lock, value, 'PX', ARGV[a])
        call('SET', grant, <<grant "value" "fence" "as">>,
          'PX', lasting(ARGV[a] + KEEP, fence))
        return fence
      end
    end
  end
