// Numbers and times as people read them. A dash where nothing is known.
const NONE = "–";
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

export function count(value) {
  return known(value) ? Math.round(value).toLocaleString("en") : NONE;
}

export function compact(value) {
  if (!known(value)) return NONE;
  if (value < 10) return value.toLocaleString("en", { maximumFractionDigits: 1 });
  if (value < 10000) return count(value);
  return value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
}

export function seconds(value) {
  if (!known(value)) return NONE;
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(2)} s`;
  if (value < 120) return `${value.toFixed(1)} s`;
  return age(value);
}

/** On an axis, where one unit and few digits do. */
export const tickSeconds = (value) => (value < 1 && value > 0 ? `${Math.round(value * 1000)} ms` : `${Number(value.toFixed(2))} s`);

export function age(value) {
  if (!known(value)) return NONE;
  const s = Math.max(0, Math.floor(value));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function bytes(value) {
  if (!known(value)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function epochText(value) {
  return known(value) && value >= 0 ? count(value) : "none";
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

/** Local time; the day only where it is not today. */
export function time(at, { millis = false } = {}) {
  if (!known(at)) return NONE;
  const date = new Date(at * 1000);
  const clock = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  const exact = millis ? `${clock}.${pad(date.getMilliseconds(), 3)}` : clock;
  const isToday = new Date().toDateString() === date.toDateString();
  return isToday ? exact : `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${exact}`;
}

export function iso(at) {
  return known(at) ? new Date(at * 1000).toISOString() : "";
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
