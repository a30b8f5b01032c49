"""What runs inside the server. A script is one atomic step: no other client's command runs before it ends.

`APPLY` puts pieces of slots in, together with their receipts. A piece is the rows `first` to `past` of a slot. What can
come between two calls, and what then happens:

* nothing: the receipt says that `first` rows are in, so the piece is written and the receipt says `past`.
* the same piece arrived before (lost reply, second driver): the receipt says `past` or more, nothing is written.
* the piece does not follow on what is in (the caller's knowledge is old): nothing is written, and the caller is told.
* the epoch's receipts were forgotten: the settled watermark stands in for them, nothing is written.
* the receipt has another fingerprint: nothing is written, and the caller is told.

A script is not rolled back when one of its commands fails, so everything that could fail is looked at before the first
write: permissions, types of keys, values of counters. Should a command fail all the same, the receipt is found `torn`
ever after: it is written so before the first row and set right after the last.
"""

from __future__ import annotations

from typing import Final

from onceward.sinks.redis.arithmetic import SUMS

_CHECKS = """
local expected = {hash = 'hash', field = 'hash', hincr = 'hash', zset = 'zset', incr = 'string'}
local commands, probe = cmsgpack.unpack(ARGV[10]), ARGV[11]

local function refuse(key, why) problem = problem or {'refused', key, why} end

-- Before Redis 7 a script cannot ask; there, whoever may look at a key may write it too.
local function may(line, key)
  if redis.acl_check_cmd then return redis.acl_check_cmd(line[1], key, unpack(line, 2)) end
  local found = redis.pcall('TYPE', key)
  return not found.err or not found.err:find('NOPERM', 1, true)
end

-- Is it this key, or the command altogether? `probe` is a key on which it was allowed when the job started.
local function forbid(key, line)
  if may(line, probe) then return refuse(key, 'this user may not run ' .. line[1] .. ' on it') end
  problem = {'forbidden', line[1], key}
end

-- A command that only looks.
local function ask(command, key, ...)
  local answer = redis.pcall(command, key, ...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if answer.err:find('NOPERM', 1, true) then forbid(key, {command, ...})
  elseif answer.err:find('WRONGTYPE', 1, true) then
    refuse(key, 'it holds a ' .. redis.call('TYPE', key).ok .. ', not a ' .. expected[kind])
  else problem = answer end
end
"""

_HOLDS_RECEIPTS = """
-- Receipts and checkpoints whose keys begin otherwise than ours: another sink of onceward has written them.
local function holds_receipts(key)
  local place = key:find(':receipts:', 1, true) or key:find(':checkpoints:', 1, true)
  if not place or redis.call('TYPE', key).ok ~= 'hash' then return false end
  local field = redis.call('HSCAN', key, '0')[2][1] or ''
  return field:match('^%w+/%d+/%d+$') or field:match('^%w+/settled$') or field:match('^%d+/%d+$')
end
"""

_CHECKS_OF_ROWS = """
local function check_key(key)
  if seen[key] then return end
  seen[key] = true
  for _, line in ipairs(redis.acl_check_cmd and commands or {}) do
    if not may(line, key) then return forbid(key, line) end
  end
  if suspect and holds_receipts(key) then return refuse(key, 'it holds receipts of onceward') end
  local counts = kind == 'incr' or kind == 'hincr'
  if counts or kind == 'string' and not in_cluster and redis.acl_check_cmd then return end
  local found = ask('TYPE', key)
  if found and kind ~= 'string' and found.ok ~= 'none' and found.ok ~= expected[kind] then
    refuse(key, 'it holds a ' .. found.ok .. ', not a ' .. expected[kind])
  end
end

-- Row after row: the counter must be able to hold what stands in it after each, however the rows are cut into parts.
local function check_counter(key, member, amount)
  if not amount and not ttl then return end
  check_key(key)
  if problem or not amount then return end
  local sums, name = member and (totals[key] or {}) or totals, member or key
  if member then totals[key] = sums end
  if not sums[name] then
    local held
    if member then held = ask('HGET', key, member) else held = ask('GET', key) end
    if problem then return end
    sums[name] = sum_from(held or '0')
    if not sums[name] then return refuse(key, 'what it holds is not a number that can be counted on') end
  end
  if not fractions and #amount > 18 and not sum_from(amount) then
    return refuse(key, 'more would be added than a counter can hold')
  end
  add(sums[name], amount)
  if is_beyond(sums[name]) then refuse(key, 'it would be more than a counter can hold') end
end

local checks = {
  string = check_key, hash = check_key, field = check_key, zset = check_key,
  incr = function(key, t, i) check_counter(key, nil, t[i]) end,
  hincr = function(key, t, i) check_counter(key, t[i], t[i + 1]) end,
}

local function check(piece)
  suspect = piece.suspect
  if is_together(piece) and not literal and not suspect and not in_cluster and redis.acl_check_cmd then
    local all = true
    in_chunks(piece, function(from, upto) all = all and redis.acl_check_cmd('MSET', unpack(piece.t, from, upto)) end)
    if all then return end
  end
  each(piece, checks[kind])
end
"""

_WRITES = """
local function expire(key)
  if ttl then redis.call('PEXPIRE', key, ttl) end
end

local writes = {}

function writes.string(key, t, i)
  if t[i] == nil then redis.call('UNLINK', key)
  elseif ttl then redis.call('SET', key, t[i], 'PX', ttl)
  else redis.call('SET', key, t[i]) end
end

function writes.hash(key, t, i)
  if t[i] == false then
    redis.call('UNLINK', key)
    return
  end
  local set, gone = {}, {}
  for n = 1, #names do
    local value = t[i + n - 1]
    if value == nil then gone[#gone + 1] = names[n]
    else
      set[#set + 1] = names[n]
      set[#set + 1] = value
    end
  end
  for from = 1, #set, MANY do redis.call('HSET', key, unpack(set, from, math.min(from + MANY - 1, #set))) end
  for from = 1, #gone, MANY do redis.call('HDEL', key, unpack(gone, from, math.min(from + MANY - 1, #gone))) end
  expire(key)
end

function writes.field(key, t, i)
  if t[i + 1] == nil then redis.call('HDEL', key, t[i]) else redis.call('HSET', key, t[i], t[i + 1]) end
  expire(key)
end

function writes.zset(key, t, i)
  if t[i] == nil then redis.call('ZREM', key, t[i + 1]) else redis.call('ZADD', key, t[i], t[i + 1]) end
  expire(key)
end

function writes.incr(key, t, i)
  if t[i] and not fractions then redis.call('INCRBY', key, t[i]) end
  expire(key)
end

function writes.hincr(key, t, i)
  if t[i + 1] and not fractions then redis.call('HINCRBY', key, t[i], t[i + 1]) end
  expire(key)
end

-- Counters with fractions were added up while they were looked at, and nobody came in between.
local function write_sums()
  for key, sums in pairs(totals) do
    if kind == 'incr' then redis.call('SET', key, text_of(sums), 'KEEPTTL')
    else for member, sum in pairs(sums) do redis.call('HSET', key, member, text_of(sum)) end end
  end
end

local many = {string = 'MSET', field = 'HSET', zset = 'ZADD'}

local function write(piece)
  if not is_together(piece) then
    if not fractions or ttl then each(piece, writes[kind]) end
    return
  end
  in_chunks(piece, function(from, upto)
    if literal then redis.call(many[kind], literal, unpack(piece.t, from, upto))
    else redis.call(many[kind], unpack(piece.t, from, upto)) end
  end)
  if literal and piece.rows > 0 then expire(literal) end
end
"""

APPLY: Final = (
    """
local receipts, generation, epoch, stamp = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local kind, fractions = ARGV[4], ARGV[5] == '1'
local ttl, literal = ARGV[6] ~= '' and ARGV[6] or nil, ARGV[7] ~= '' and ARGV[7] or nil
local in_cluster, names = ARGV[8] == '1', cmsgpack.unpack(ARGV[9])
local width = (literal and 0 or 1) + (kind == 'hash' and #names or (kind == 'string' or kind == 'incr') and 1 or 2)
local seen, totals, suspect, problem = {}, {}, false, nil
-- Lua hands no more than some thousand values to a command at once.
local MANY = 1000

local function each(piece, visit)
  for i = 1, piece.rows * width, width do
    if literal then visit(literal, piece.t, i) else visit(piece.t[i], piece.t, i + 1) end
    if problem then return end
  end
end

-- Rows without nulls, in one command for every thousand: a call from a script costs as much as what it calls.
local function is_together(piece)
  return piece.plain
    and (kind == 'string' and not literal and not ttl or literal and (kind == 'field' or kind == 'zset'))
end

local function in_chunks(piece, visit)
  local last = piece.rows * width
  for from = 1, last, MANY * width do visit(from, math.min(from + MANY * width - 1, last)) end
end
"""
    + SUMS
    + _CHECKS
    + _HOLDS_RECEIPTS
    + _CHECKS_OF_ROWS
    + _WRITES
    + """
-- What the promises rest on, looked at in the very step that relies on it. `ARGV[12]`: the policies that were found at
-- the start, and whether there was an append-only file; empty: do not look.
if ARGV[12] ~= '' then
  local policies, journal = ARGV[12]:match('^(%S+) (%d)$')
  local policy = redis.call('INFO', 'memory'):match('maxmemory_policy:([%w-]+)') or 'noeviction'
  local keeps = redis.call('INFO', 'persistence'):match('aof_enabled:(%d)') or '0'
  if not (',' .. policies .. ','):find(',' .. policy .. ',', 1, true) or journal > keeps then
    return {'changed', policy, keeps}
  end
end

-- How many rows of each slot are in, as its receipt or the watermark says.
local done, marks, settled = {}, {}, tonumber(redis.call('HGET', receipts, generation .. '/settled') or '-1')

local function field_of(slot) return generation .. '/' .. ARGV[2] .. '/' .. slot end

local function look(slot, fingerprint)
  marks[slot] = fingerprint
  local found = redis.call('HGET', receipts, field_of(slot))
  if not found then
    done[slot] = epoch <= settled and math.huge or 0
    return
  end
  local mark, rows, state = found:match('^(%S+) (%d+) (%a+)')
  if mark ~= fingerprint then problem = {'other', slot}
  elseif state == 'torn' then problem = {'torn', slot}
  else done[slot] = state == 'in' and math.huge or tonumber(rows) end
end

local pieces, after = {}, {}
for i = 14, #ARGV, 9 do
  local slot, first, past = ARGV[i], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  if slot ~= '' and not done[slot] then look(slot, ARGV[i + 1]) end
  if problem then return problem end
  if slot == '' or done[slot] == first then
    local t = ARGV[i + 8] ~= '' and cmsgpack.unpack(ARGV[i + 8]) or {}
    local rows, plain, suspicious = tonumber(ARGV[i + 5]), ARGV[i + 6] == '1', ARGV[i + 7] == '1'
    pieces[#pieces + 1] = {rows = rows, plain = plain, suspect = suspicious, t = t}
    if slot ~= '' then
      done[slot] = past
      after[slot] = marks[slot] .. ' ' .. ARGV[i + 3] .. (ARGV[i + 4] == '1' and ' in ' or ' part ') .. stamp
    end
  elseif done[slot] < past then
    return {'elsewhere', slot, tostring(done[slot])}
  end
end
if #pieces == 0 then return {'nothing'} end

for _, piece in ipairs(pieces) do
  check(piece)
  if problem then return problem end
end
if ARGV[13] == '1' then return {'fine'} end

for slot in pairs(after) do redis.call('HSET', receipts, field_of(slot), marks[slot] .. ' 0 torn ' .. stamp) end
if fractions then write_sums() end
for _, piece in ipairs(pieces) do write(piece) end
for slot, text in pairs(after) do redis.call('HSET', receipts, field_of(slot), text) end

-- In a cluster every hash slot has receipts of its own. Epochs come in order, so one that begins ends those before it.
if in_cluster and next(after) and settled < epoch - 1 then
  redis.call('HSET', receipts, generation .. '/settled', epoch - 1)
  for _, field in ipairs(redis.call('HKEYS', receipts)) do
    local whose, number = field:match('^([^/]+)/(%d+)/')
    if whose == generation and tonumber(number) < epoch then redis.call('HDEL', receipts, field) end
  end
end
return {'applied'}
"""
)

RAISE_WATERMARK: Final = """
local held = tonumber(redis.call('HGET', KEYS[1], ARGV[1] .. '/settled') or '-1')
if held < tonumber(ARGV[2]) then redis.call('HSET', KEYS[1], ARGV[1] .. '/settled', ARGV[2]) end
return math.max(held, tonumber(ARGV[2]))
"""

LOOK: Final = (
    _HOLDS_RECEIPTS
    + """
-- What a key holds, and the first of some commands that this user may not run on it. It is no key of the call: that
-- would be refused as a whole. In a cluster `KEYS[1]` is of the same hash slot.
local key = ARGV[1]
for _, line in ipairs(cmsgpack.unpack(ARGV[2])) do
  if redis.acl_check_cmd and not redis.acl_check_cmd(line[1], key, unpack(line, 2)) then return {'', line[1]} end
end
local found = redis.pcall('TYPE', key)
if found.err then return found.err:find('NOPERM', 1, true) and {'', 'TYPE'} or found end
if holds_receipts(key) then return {'receipts', ''} end
return {found.ok, ''}
"""
)

TRY: Final = """
-- Every command that APPLY may use, on a key that is gone before anyone can see it.
local key, refused = KEYS[1], {}
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then refused[#refused + 1] = (...) .. ': ' .. answer.err end
end
for _, line in ipairs(cmsgpack.unpack(ARGV[1])) do
  try(line[1], key, unpack(line, 2))
end
redis.pcall('UNLINK', key)
return refused
"""
"""`ARGV[1]`: a list of commands without their key."""
