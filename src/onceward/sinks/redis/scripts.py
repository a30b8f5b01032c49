"""What runs inside the server. A script is one atomic step: no other client's command runs before it ends.

`APPLY` puts pieces of slots in, together with their receipts. A piece is the rows `first` to `past` of a slot. What can
come between two calls, and what then happens:

* nothing: the receipt says that `first` rows are in, so the piece is written and the receipt says `past`.
* the same piece arrived before (lost reply, second driver): the receipt says `past` or more, nothing is written.
* the piece does not follow on what is in (the caller's knowledge is old): nothing is written, and the caller is told.
* the epoch's receipts were forgotten: the settled watermark stands in for them, nothing is written.
* the receipt has another fingerprint: nothing is written, and the caller is told.

A script is not rolled back when one of its commands fails, so everything that could fail is looked at before the first
write: types of keys, values of counters. Should a command fail all the same, the receipt is found `torn` ever after:
it is written so before the first row and set right after the last.
"""

from __future__ import annotations

from typing import Final

_CHECKS = """
local expected = {hash = 'hash', field = 'hash', hincr = 'hash', zset = 'zset', incr = 'string'}

local function check_type(key)
  if seen[key] then return end
  seen[key] = true
  local found = redis.call('TYPE', key).ok
  if kind ~= 'string' and found ~= 'none' and found ~= expected[kind] then
    problem = {'refused', key, 'it holds a ' .. found .. ', not a ' .. expected[kind]}
  end
end

local function is_number(text)
  if fractions then
    return text:match('^[-+]?%d+%.?%d*[eE]?[-+]?%d*$') and tonumber(text) and math.abs(tonumber(text)) < 1e300
  end
  return text == '0' or (text:match('^-?[1-9]%d*$') and #text <= 20)
end

-- The sum of what a counter holds and of everything that is to be added, signs aside: below the limit no order of
-- additions can overflow.
local function check_counter(key, member, amount)
  if not amount then return end
  local sums = member and (totals[key] or {}) or totals
  local name = member or key
  if member then totals[key] = sums end
  if not sums[name] then
    local held
    if member then held = redis.pcall('HGET', key, member) else held = redis.pcall('GET', key) end
    if type(held) == 'table' then
      check_type(key)
      if not problem then error(held.err) end
      return
    end
    held = held or '0'
    if not is_number(held) then
      problem = {'refused', key, 'what it holds is not a number that can be counted on'}
      return
    end
    sums[name] = math.abs(tonumber(held))
  end
  sums[name] = sums[name] + math.abs(tonumber(amount))
  if sums[name] >= (fractions and 1e300 or 4611686018427387904) then
    problem = {'refused', key, 'it would come near to what a counter can hold'}
  end
end

local checks = {
  string = check_type, hash = check_type, field = check_type, zset = check_type,
  incr = function(key, t, i) check_counter(key, nil, t[i]) end,
  hincr = function(key, t, i) check_counter(key, t[i], t[i + 1]) end,
}
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
  if #set > 0 then redis.call('HSET', key, unpack(set)) end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
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
  if t[i] then redis.call(fractions and 'INCRBYFLOAT' or 'INCRBY', key, t[i]) end
  expire(key)
end

function writes.hincr(key, t, i)
  if t[i + 1] then redis.call(fractions and 'HINCRBYFLOAT' or 'HINCRBY', key, t[i], t[i + 1]) end
  expire(key)
end

-- Rows without nulls, in one command for every thousand: a call from a script costs as much as what it calls.
local many = {string = 'MSET', field = 'HSET', zset = 'ZADD'}

local function write_many(piece)
  local last = piece.rows * width
  for i = 1, last, 1000 * width do
    local upto = math.min(i + 1000 * width - 1, last)
    if literal then redis.call(many[kind], literal, unpack(piece.t, i, upto))
    else redis.call(many[kind], unpack(piece.t, i, upto)) end
  end
  if literal and piece.rows > 0 then expire(literal) end
end

local function write(piece)
  local together = kind == 'string' and not literal and not ttl or literal and (kind == 'field' or kind == 'zset')
  if together and piece.plain then write_many(piece) else each(piece, writes[kind]) end
end
"""

APPLY: Final = (
    """
local receipts, generation, epoch, stamp = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local kind, fractions = ARGV[4], ARGV[5] == '1'
local ttl, literal = ARGV[6] ~= '' and ARGV[6] or nil, ARGV[7] ~= '' and ARGV[7] or nil
local in_cluster, names = ARGV[8] == '1', cmsgpack.unpack(ARGV[9])
local width = (literal and 0 or 1) + (kind == 'hash' and #names or (kind == 'string' or kind == 'incr') and 1 or 2)
local seen, totals, problem = {}, {}, nil

local function each(piece, visit)
  for i = 1, piece.rows * width, width do
    if literal then visit(literal, piece.t, i) else visit(piece.t[i], piece.t, i + 1) end
    if problem then return end
  end
end
"""
    + _CHECKS
    + _WRITES
    + """
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
for i = 10, #ARGV, 8 do
  local slot, first, past = ARGV[i], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  if slot ~= '' and not done[slot] then look(slot, ARGV[i + 1]) end
  if problem then return problem end
  if slot == '' or done[slot] == first then
    local t = ARGV[i + 7] ~= '' and cmsgpack.unpack(ARGV[i + 7]) or {}
    pieces[#pieces + 1] = {rows = tonumber(ARGV[i + 5]), plain = ARGV[i + 6] == '1', t = t}
    if slot ~= '' then
      done[slot] = past
      after[slot] = marks[slot] .. ' ' .. ARGV[i + 3] .. (ARGV[i + 4] == '1' and ' in ' or ' part ') .. stamp
    end
  elseif done[slot] < past then
    return {'elsewhere', slot, tostring(done[slot])}
  end
end
if #pieces == 0 then return {'nothing'} end

if kind ~= 'string' or in_cluster then
  for _, piece in ipairs(pieces) do
    each(piece, checks[kind])
    if problem then return problem end
  end
end

for slot in pairs(after) do redis.call('HSET', receipts, field_of(slot), marks[slot] .. ' 0 torn ' .. stamp) end
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
