// The table of epochs: paged by the server, filtered, searched by number or time.
import { get, query } from "../api.js";
import { h } from "../dom.js";
import { bytes, count, plural, seconds } from "../format.js";
import { empty, moment, outcome, paging, phaseBar, table } from "../parts.js";

const LIMIT = 50;

export function load(here, signal) {
  const given = Object.fromEntries(here.params);
  return get(`jobs/${here.job}/epochs${query({ ...search(given.q || ""), outcome: given.outcome, unusual: given.unusual, offset: given.offset || 0, limit: LIMIT })}`, signal);
}

/** "17", "10-40", or a time such as "14:30", "2026-11-17 14:30"; a time means from then on for a minute, or to "..". */
export function search(text) {
  const epochs = text.trim().match(/^(\d{1,15})(?:\s*(?:-|–|to)\s*(\d{1,15}))?$/);
  if (epochs) return { first: epochs[1], last: epochs[2] || epochs[1] };
  const [from, to] = text.split("..").map((part) => instant(part.trim()));
  if (!from) return {};
  return { since: from, until: to || from + 60 };
}

function instant(text) {
  const found = text && text.match(/^(?:(\d{4})-(\d\d)-(\d\d)[ T])?(\d{1,2}):(\d\d)(?::(\d\d))?$/);
  if (!found) return null;
  const at = new Date();
  if (found[1]) at.setFullYear(Number(found[1]), Number(found[2]) - 1, Number(found[3]));
  at.setHours(Number(found[4]), Number(found[5]), Number(found[6] || 0), 0);
  return at.getTime() / 1000;
}

const COLUMNS = [["Epoch", "number"], ["Outcome"], ["Began"], ["Took", "number"], ["Phases", "only-wide"], ["Visible after", "number only-wide"],
  ["Rows", "number"], ["Bytes", "number only-widest"], ["Slots", "number only-widest"]];

export function render(found, { here, remember }) {
  const set = (name, value) => {
    const params = new URLSearchParams(here.params);
    params.delete("offset");
    if (value) params.set(name, value); else params.delete(name);
    here.params = params;
    remember(params);
  };
  const go = (offset) => { const params = new URLSearchParams(here.params); params.set("offset", offset); here.params = params; remember(params); };
  const slowest = Math.max(0, ...found.epochs.map((one) => one.took || 0));
  const rows = found.epochs.map((one) => ({ key: `${one.epoch}-${one.run}-${one.begun}`, cells: [
    h("a", { href: `#/job/${here.job}/epoch/${one.epoch}` }, count(one.epoch)),
    [outcome(one.outcome), notes(one)],
    moment(one.begun), seconds(one.took), phaseBar(one.phases, { of: slowest }), seconds(one.delay), count(one.rows), bytes(one.bytes), count(one.slots)] }));
  return h("section.card",
    h("header", h("h2", "Epochs"), found.complete ? null : h("p.soft.small", "older ones are still being read …")),
    filters(here, set),
    rows.length ? table("Attempts at epochs, the newest first", COLUMNS, rows) : empty("No epoch fits", "Try another filter, or wait: an epoch is written down within seconds of its end."),
    paging(found, go));
}

function notes(one) {
  const said = [one.takeover ? "taken over" : "", one.is_recovered ? "published by a recovery" : "", one.retries ? plural(one.retries, "retry", "retries") : "", one.error];
  const text = said.filter(Boolean).join(", ");
  return text ? h("span.small.wrap", { title: one.why }, text) : null;
}

function filters(here, set) {
  const now = (name) => here.params.get(name) || "";
  const shown = [["", "All"], ["settled", "Settled"], ["failed", "Failed"], ["open", "In flight"]];
  return h("div.filters",
    h("div.field", h("label", { for: "q" }, "Epoch, range or time"),
      h("input", { id: "q", type: "search", placeholder: "17, 10-40, 14:30", value: now("q"), onchange: (event) => set("q", event.target.value) })),
    h("div.row", { role: "group", "aria-label": "Outcome" }, shown.map(([value, text]) =>
      h("button", { type: "button", "aria-pressed": String(now("outcome") === value), onclick: () => set("outcome", value) }, text))),
    h("button", { type: "button", "aria-pressed": String(!!now("unusual")), onclick: () => set("unusual", now("unusual") ? "" : "true") }, "Only unusual"));
}

