// One epoch: every attempt, its steps, slots, sinks with their transactions, offsets, state, and what failed.
import { get } from "../api.js";
import { h } from "../dom.js";
import { bytes, count, plural, seconds } from "../format.js";
import { card, empty, kindText, labelled, moment, outcome, paging, stats, table } from "../parts.js";

const SLOTS = 100;
const STEPS = { barrier: "Barrier", begun: "Staging begins", staged: "All slots acknowledged", pre_committed: "Manifest is durable",
  decided: "Decided", delivered: "Every sink has it", settled: "Settled", failed: "Failed" };
const STATES = { settled: ["good", "Settled"], decided: ["warn", "Decided, waits to be published"], staged: ["busy", "Pre-committed, not decided"], planned: ["busy", "Planned"] };
let places = {};

export const load = (here, signal) => get(`jobs/${here.job}/epochs/${encodeURIComponent(here.epoch)}`, signal);

export function render(found, { here, redraw }) {
  const attempts = [...found.attempts].reverse();
  const steps = (number) => `#/job/${here.job}/epoch/${number}`;
  return [
    h("div.row.apart", h("div.row", h("h1", `Epoch ${count(found.epoch)}`), labelled(...(STATES[found.state] || ["", found.state]))),
      h("nav.row", { "aria-label": "Other epochs" }, found.epoch > 0 ? h("a.button", { href: steps(found.epoch - 1) }, "Before") : null, h("a.button", { href: steps(found.epoch + 1) }, "After"))),
    attempts.length ? attempts.map((one, place) => attempt(one, attempts.length - place, found, redraw, here))
      : card("History", empty("Nothing is written down of it", "Its driver was killed before it could, or it is being staged by a driver without an API.")),
    sinks(found, redraw),
    offsets(found),
  ];
}

export const leave = () => { places = {}; };

function attempt(one, number, found, redraw, here) {
  const title = found.attempts.length > 1 ? `Attempt ${number}` : "What happened";
  const longest = Math.max(...Object.values(one.phases), 0.000001);
  return h("section.card", { "data-key": `${one.run}-${one.begun}` },
    h("header", h("div.row", h("h2", title), outcome(one.outcome)), h("p.soft.small", `run ${one.run}`, one.takeover ? ` · takeover ${one.takeover}` : "",
      one.guarantee ? ` · ${one.guarantee}` : "", one.is_recovered ? " · published by the recovery of this run" : "")),
    one.error ? h("div.why", { role: "note" }, h("p.wrap", h("b", one.error), ": ", one.why)) : null,
    stats([["Took", seconds(one.took)], ["Decision to visible", seconds(one.delay)], ["Rows read", count(one.input_rows)], ["Rows staged", count(one.rows)],
      ["Bytes", bytes(one.bytes)], ["Slots", count(one.slots)], ["First to last ack", one.first_ack ? seconds(one.last_ack - one.first_ack) : "–"]]),
    Object.keys(one.phases).length ? h("ul.steps", Object.entries(one.phases).map(([phase, took]) => h("li",
      h("span", phase), h("span.number", seconds(took)), h("div.bars", { "aria-hidden": "true" }, h("i", { class: phase === "alignment" ? "staging" : phase, grow: took * 1000 }), h("i.rest", { grow: (longest - took) * 1000 })),
      h("span.small", found.meaning[phase])))) : null,
    h("div.columns",
      h("div.why", h("h3", "Steps"), h("dl.pairs", Object.entries(STEPS).filter(([step]) => one.times[step]).map(([step, text]) => [h("dt", text), h("dd", moment(one.times[step], { millis: true }))]))),
      one.state.length ? h("div.why", h("div.row.apart", h("h3", "State at its end"), h("a", { href: `#/job/${here.job}/state?epoch=${found.epoch}` }, "Browse it")), table("State sizes", [["Operator"], ["Keys", "number"], ["Bytes", "number"], ["Commit", "number"]],
        one.state.map((size) => [[h("span.wrap", size.name || kindText(size.kind)), size.name ? h("span.small", kindText(size.kind)) : null], count(size.rows), bytes(size.bytes), size.commit_ms === null ? "–" : `${count(size.commit_ms)} ms`]))) : null),
    delivered(one), slots(one, redraw));
}

function delivered(one) {
  const lines = Object.entries(one.sinks);
  if (!lines.length) return null;
  return h("div.why", h("h3", "Deliveries"), table("What each sink got", [["Sink"], ["Rows", "number"], ["Slots", "number"], ["Took", "number"], ["Repeated", "number"], ["Last failure"]],
    lines.map(([name, sink]) => [h("span.wrap", name), count(sink.rows), count(sink.slots), sink.began && sink.delivered ? seconds(sink.delivered - sink.began) : "–", count(sink.retries), h("span.wrap", sink.failure || "–")])));
}

function slots(one, redraw) {
  const all = one.slot;
  if (!all.slot.length) return null;
  const key = `slots-${one.run}-${one.begun}`;
  const offset = places[key] || 0;
  const shown = all.slot.slice(offset, offset + SLOTS).map((_, place) => offset + place);
  const first = one.first_ack;
  return h("div.why", h("h3", `Slots${all.slot.length < one.slots ? `, the first ${count(all.slot.length)} of ${count(one.slots)}` : ""}`),
    table("Slots", [["Slot", "number"], ["Rows", "number"], ["Bytes", "number"], ["Acknowledged"], ["After the first", "number"], ["Host", "only-wide"]],
      shown.map((place) => [count(all.slot[place]), count(all.rows[place]), bytes(all.bytes[place]), moment(all.acked[place], { millis: true }),
        all.acked[place] && first ? seconds(all.acked[place] - first) : "–", h("span.wrap", all.host[place])])),
    all.slot.length > SLOTS ? paging({ offset, limit: SLOTS, total: all.slot.length }, (next) => { places[key] = next; redraw(); }) : null);
}

function sinks(found, redraw) {
  if (!found.sinks.length) return null;
  return h("section.card", h("header", h("h2", "What each sink staged"), h("p.soft.small", found.settled ? ["every slot had its receipt at ", moment(found.settled)] : "not settled yet")),
    found.sinks.map((sink) => {
      const offset = places[sink.name] || 0;
      const shown = sink.slot.slice(offset, offset + SLOTS).map((_, place) => offset + place);
      return h("div.why", h("h3.wrap", sink.name), h("p.soft.small.wrap", `${sink.mechanism}${sink.receipts_at ? `; receipts at ${sink.receipts_at}` : ""}`),
        sink.slot.length ? table(`Transactions of ${sink.name}`, [["Slot", "number"], ["Rows", "number"], ["Transaction"]],
          shown.map((place) => [count(sink.slot[place]), count(sink.slot_rows[place]), h("code.wrap", sink.transaction[place])])) : h("p.soft", "no rows"),
        sink.slot.length > SLOTS ? paging({ offset, limit: SLOTS, total: sink.slot.length }, (next) => { places[sink.name] = next; redraw(); }) : null);
    }));
}

function offsets(found) {
  const newest = found.attempts.at(-1);
  const ends = newest ? Object.entries(newest.sources) : [];
  return h("section.card", h("header", h("h2", "Where it ends in its sources"), found.planned ? h("p.soft.small", "planned ", moment(found.planned)) : null),
    found.offsets.length ? table("Offsets by partition", [["Topic"], ["Partition", "number"], ["From", "number"], ["To", "number"], ["Records", "number"]],
      found.offsets.map((one) => [one.topic, count(one.partition), count(one.first), count(one.past - 1), count(one.past - one.first)])) : null,
    ends.length ? h("dl.pairs", ends.map(([name, end]) => [h("dt.wrap", name), h("dd", h("code.wrap", end))])) : null,
    !found.offsets.length && !ends.length ? (found.sources.length ? h("dl.pairs", found.sources.map((text, place) => [h("dt", `source ${place}`), h("dd", h("code.wrap", text))]))
      : h("p.soft", "Spark has removed it from its log.")) : null,
    found.fingerprint ? h("p.soft.small", `${plural(found.sources.length, "source")}, fingerprint `, h("code.wrap", found.fingerprint)) : null);
}
