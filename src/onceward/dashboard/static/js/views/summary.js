// Totals and percentiles over all that is kept.
import { get } from "../api.js";
import { h } from "../dom.js";
import { bytes, compact, count, seconds } from "../format.js";
import { card, empty, stats, table } from "../parts.js";

export const load = (here, signal) => get(`jobs/${here.job}/summary`, signal);

const NAMES = { duration: "whole epoch", delay: "decision to visible", state_bytes: "state" };
const unit = (name) => (name === "bytes" || name === "state_bytes" ? bytes : name === "rows" ? count : seconds);

export function render(found) {
  if (!found.epochs) return card("Summary", empty("Nothing to sum up yet", "An epoch counts within seconds of its end."));
  const lines = Object.entries(found.distributions).map(([name, one]) => {
    const say = unit(name);
    return [[h("span", NAMES[name] || name), found.meaning[name] ? h("span.small.only-wide", found.meaning[name]) : null],
      say(one.min), say(one.mean), h("b", say(one.p50)), say(one.p90), say(one.p99), say(one.max), count(one.count)];
  });
  return [
    h("section.card", { "aria-label": "Totals" }, stats([["Epochs kept", count(found.epochs)], ["Settled", count(found.settled)],
      ["Failed attempts", count(found.failed), found.failed ? "bad" : ""], ["Taken over", count(found.taken_over)], ["Deliveries repeated", count(found.retries), found.retries ? "warn" : ""],
      ["Rows", compact(found.rows)], ["Bytes", bytes(found.bytes)]])),
    card("Percentiles", found.complete ? null : h("p.soft.small", "older epochs are still being read …"),
      table("Percentiles over settled epochs", [["Of"], ["Min", "number only-wide"], ["Mean", "number only-wide"], ["Median", "number"], ["p90", "number"], ["p99", "number"], ["Max", "number"], ["Epochs", "number only-widest"]], lines)),
  ];
}
