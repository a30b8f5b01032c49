"""Exact sums inside the server. Its own INCRBYFLOAT adds binary fractions, and Lua's numbers are doubles.

A sum is a table of limbs of 14 decimal digits, aligned at the decimal point: `sum[0]` has the last 14 whole digits,
`sum[-1]` the first 14 of the fraction. Limbs may be negative and grow beyond 14 digits for a while; `carry` puts that
right before a double would lose a digit (2^53 is about 9e15).
"""

from __future__ import annotations

from typing import Final

MOST_WHOLE_DIGITS: Final = 300
MOST_FRACTION_DIGITS: Final = 340
"""Of a number that a counter holds. No sum of doubles or decimals has longer fractions."""

SUMS: Final = f"""
local BASE, DIGITS, CARRY_AFTER = 1e14, 14, 40

-- Sign, whole digits and fraction of what a counter holds or gets. Other clients may have written it as 1e3.
local function split(text)
  local sign, whole, fraction, power = text:match('^([-+]?)(%d+)%.?(%d*)[eE]([-+]?%d+)$')
  if not sign then return text:match('^([-+]?)(%d+)%.?(%d*)$') end
  power = tonumber(power)
  if math.abs(power) > {MOST_FRACTION_DIGITS + MOST_WHOLE_DIGITS} then return nil end
  local digits = ('0'):rep(-power) .. whole .. fraction .. ('0'):rep(power)
  local point = #whole + math.max(power, 0)
  return sign, digits:sub(1, point), digits:sub(point + 1)
end

local function carry(sum)
  local over, k = 0, sum.bottom
  while k <= sum.top or over ~= 0 do
    local limb = (sum[k] or 0) + over
    sum[k] = math.fmod(limb, BASE)
    over = (limb - sum[k]) / BASE
    k = k + 1
  end
  sum.top, sum.added = math.max(sum.top, k - 1), 0
end

local function add(sum, text)
  if not fractions and #text <= 15 then
    sum[0] = sum[0] + tonumber(text)
    if math.abs(sum[0]) > CARRY_AFTER * BASE then carry(sum) end
    return
  end
  local sign, whole, fraction = split(text)
  local unit, k = sign == '-' and -1 or 1, 0
  for last = #whole, 1, -DIGITS do
    sum[k] = (sum[k] or 0) + unit * tonumber(whole:sub(math.max(1, last - DIGITS + 1), last))
    sum.top, k = math.max(sum.top, k), k + 1
  end
  k = -1
  for first = 1, #fraction, DIGITS do
    local limb = fraction:sub(first, first + DIGITS - 1)
    sum[k] = (sum[k] or 0) + unit * tonumber(limb .. ('0'):rep(DIGITS - #limb))
    sum.bottom, k = math.min(sum.bottom, k), k - 1
  end
  sum.near, sum.added = sum.near + tonumber(text), sum.added + 1
  if sum.added >= CARRY_AFTER then carry(sum) end
end

local function text_of(sum)
  carry(sum)
  local top = sum.top
  while top > sum.bottom and (sum[top] or 0) == 0 do top = top - 1 end
  local unit, over, whole, fraction = (sum[top] or 0) < 0 and -1 or 1, 0, '', ''
  for k = sum.bottom, math.max(top, 0) do
    local limb = unit * (sum[k] or 0) + over
    over = limb < 0 and -1 or 0
    local digits = string.format('%014.0f', limb - over * BASE)
    if k < 0 then fraction = digits .. fraction else whole = digits .. whole end
  end
  whole, fraction = whole:gsub('^0+', ''), fraction:gsub('0+$', '')
  local text = (whole == '' and '0' or whole) .. (fraction == '' and '' or '.' .. fraction)
  return unit < 0 and '-' .. text or text
end

-- Whether a counter cannot hold it: beyond 64 bits, or for fractions beyond what anyone reads as a number.
local function is_beyond(sum)
  if fractions then return math.abs(sum.near) >= 1e{MOST_WHOLE_DIGITS} end
  if math.abs((sum[1] or 0) * BASE + sum[0]) < 9.2e18 then return false end
  local digits = text_of(sum)
  local most = digits:sub(1, 1) == '-' and '9223372036854775808' or '9223372036854775807'
  digits = digits:gsub('^-', '')
  return #digits > #most or #digits == #most and digits > most
end

-- A sum that begins with what a counter holds; nil when that is nothing to count on.
local function sum_from(text)
  local sum = {{[0] = 0, top = 0, bottom = 0, added = 0, near = 0}}
  if fractions then
    local sign, whole, fraction = split(text)
    if not sign or #fraction > {MOST_FRACTION_DIGITS} then return nil end
    if #whole:gsub('^0+', '') > {MOST_WHOLE_DIGITS} then return nil end
  elseif text ~= '0' and not (text:match('^-?[1-9]%d*$') and #text <= 20) then
    return nil
  end
  add(sum, text)
  if is_beyond(sum) then return nil end
  return sum
end
"""
"""`fractions` says whether this counter's column has any."""
