// Small components: how a state, a table, a number or a bar looks, everywhere.
import { h, svg } from "./dom.js";
import { age, bytes, compact, count, iso, seconds, time } from "./format.js";

export const PHASES = ["planning", "barrier", "staging", "manifest", "decision", "publish", "settle"];

const STANDINGS = {
  running: ["good", "Running"],
  "catching-up": ["busy", "Catching up"],
  "held-back": ["warn", "Held back"],
  stopping: ["busy", "Stopping"],
  restarting: ["busy", "Restarting"],
  silent: ["warn", "Not answering"],
  seen: ["good", "Moving, no API"],
  stopped: ["", "Stopped"],
  failed: ["bad", "Failed"],
  refused: ["bad", "Refused"],
};
const OUTCOMES = { settled: ["good", "Settled"], failed: ["bad", "Failed"], open: ["busy", "In flight"] };
const VERDICTS = { commit: ["warn", "Commit"], abort: ["bad", "Abort"], wait: ["busy", "Wait"], ask: ["warn", "Ask"] };

const badge = ([kind, text]) => h("span.badge", { class: kind }, text);
export const standing = (one) => badge(STANDINGS[one.kind] || ["", one.kind]);
export const standingText = (one) => (STANDINGS[one.kind] || ["", one.kind])[1];
export const outcome = (one) => badge(OUTCOMES[one] || ["", one]);
export const verdict = (one) => badge(VERDICTS[one] || ["", one]);
export const labelled = (kind, text) => badge([kind, text]);

const KINDS = { stateStoreSave: "aggregate", dedupe: "dedupe", dedupeWithinWatermark: "dedupe within watermark", symmetricHashJoin: "join", sessionWindowStateStoreSaveExec: "session windows",
  streamingLimit: "limit", flatMapGroupsWithState: "flatMapGroupsWithState", applyInPandasWithState: "applyInPandasWithState" };
/** Spark's word for a kind of operator, as people say it. */
export const kindText = (kind) => KINDS[kind] || (kind.startsWith("transformWithState") ? "transformWithState" : kind) || "operator";

/** A moment, exact on hover. */
export const moment = (at, options) =>
  at === null || at === undefined ? "–" : h("time", { datetime: iso(at), title: iso(at) }, time(at, options));

/** How long ago; counts on by itself (see `tick`). */
export const ago = (at) => (at ? h("time", { datetime: iso(at), title: iso(at), "data-ago": at }, `${age(Date.now() / 1000 - at)} ago`) : "–");

export function tick() {
  for (const node of document.querySelectorAll("[data-ago]")) {
    const text = `${age(Date.now() / 1000 - Number(node.dataset.ago))} ago`;
    if (node.textContent !== text) node.firstChild.data = text;
  }
}

export function why(one) {
  if (!one.why && !one.command) return null;
  return h("div.why", one.why && h("p.small.wrap", one.why), one.command && command(one.command));
}

export function command(text) {
  const button = h("button", { type: "button", "aria-label": `Copy the command ${text}` }, "Copy");
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousSibling);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  return h("div.command", { "data-key": text }, h("code", text), button);
}

/** stats([["Rows", 12, "kind", "what it is"], ...]) */
export const stats = (lines) => h("dl.stats", lines.filter(Boolean).map(([name, value, kind, meaning]) =>
  h("div", { title: meaning }, h("dt", name), h("dd", { class: kind || "" }, value))));

/** table("What it is", [["Epoch", "number"], ...], rows); a row is a list of cells, or {cells, key}. */
export function table(caption, columns, rows, { visible = false } = {}) {
  const heads = columns.map(([name, kind]) => h("th", { scope: "col", class: kind || "" }, name));
  const lines = rows.map((row) => {
    const { cells, key } = Array.isArray(row) ? { cells: row } : row;
    return h("tr", { "data-key": key }, cells.map((cell, place) => h("td", { class: columns[place][1] || "" }, cell)));
  });
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": caption },
    h("table", h("caption", { class: visible ? "" : "hidden" }, caption), h("thead", h("tr", heads)), h("tbody", lines)));
}

/** `of`: the whole length of the bar, so that several can be compared; without it, all of them together. */
export function phaseBar(phases, { tall = false, of = 0 } = {}) {
  const known = PHASES.filter((phase) => phases[phase] > 0);
  const rest = of - known.reduce((sum, phase) => sum + phases[phase], 0);
  const text = known.map((phase) => `${phase} ${seconds(phases[phase])}`).join(", ") || "no phase is known";
  return h("div.bars", { class: tall ? "tall" : "", role: "img", "aria-label": text, title: text },
    known.map((phase) => h("i", { class: phase, grow: phases[phase] * 1000 })), rest > 0 ? h("i.rest", { grow: rest * 1000 }) : null);
}

export const phaseLegend = (phases = null) => h("ul.legend", (phases ? PHASES.filter((phase) => phases[phase] !== undefined) : [...PHASES, "failed"]).map((phase) =>
  h("li", h("i", { class: phase }), phase, phases ? h("b", seconds(phases[phase])) : null)));

export function sparkline(values, label) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return h("p.soft.small", "no line yet");
  const top = Math.max(...known) || 1;
  const width = 160 / 40;
  return svg("svg", { class: "spark", viewBox: "0 0 160 42", preserveAspectRatio: "none", role: "img", "aria-label": label },
    values.map((value, place) => {
      const height = Math.max(1.5, (38 * (value || 0)) / top);
      return svg("rect", { x: 160 - (values.length - place) * width, y: 42 - height, width: width - 1, height, rx: 0.8 });
    }));
}

export const card = (title, ...rest) => h("section.card", h("header", h("h2", title)), rest);

export const empty = (title, text) => h("div.empty", h("b", title), text);
export const loading = () => h("p.loading", { role: "status" }, "Loading …");
export const problem = (error) => h("section.card.problem", { role: "alert" },
  h("h2.wrap", sentence(error.message)), error.hint ? h("p.wrap", sentence(error.hint)) : null,
  h("p.soft.small", error.status === 404 ? h("a", { href: "#/" }, "To all jobs") : error.kind));

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function paging({ offset, limit, total }, go) {
  const last = Math.min(total, offset + limit);
  return h("nav.paging", { "aria-label": "Pages" },
    h("span", total ? `${count(offset + 1)}–${count(last)} of ${count(total)}` : "none"),
    h("button", { type: "button", disabled: offset === 0, onclick: () => go(Math.max(0, offset - limit)) }, "Newer"),
    h("button", { type: "button", disabled: last >= total, onclick: () => go(offset + limit) }, "Older"));
}

export const units = { bytes, compact, count, seconds };
