// One job: how it stands, the way of its data, where its time goes, its newest epochs.
import { get } from "../api.js";
import { h, svg } from "../dom.js";
import { bytes, compact, count, epochText, plural, seconds } from "../format.js";
import { ago, card, empty, kindText, phaseBar, phaseLegend, standing, stats, why } from "../parts.js";
import { timeline } from "../timeline.js";

let chart = null;

export const load = (here, signal) => get(`jobs/${here.job}`, signal);

/** Above every view of a job. */
export function heading(job, here) {
  if (!job) return h("div");
  const at = job.driver_seen || job.last_seen;
  const seen = job.live || !at ? null : h("p.soft.small", "last seen ", ago(at));
  return h("div.why", h("div.row", h(here.epoch ? "p" : "h1", { class: here.epoch ? "soft" : "" }, job.job), standing(job.standing), seen),
    h("p.soft.small.wrap", job.checkpoint), why(job.standing));
}

export function render(job, { here }) {
  if (!job.begun) return card("Not begun yet", empty("Nothing here so far", "The job has not made its checkpoint yet. It appears here when it does."));
  const doubt = job.in_doubt.reduce((sum, one) => sum + one.transactions, 0);
  const waiting = job.limit ? [count(job.unpublished), h("small", ` of ${job.limit}`)] : count(job.unpublished);
  return [
    h("section.card", { "aria-label": "Now" }, stats([
      ["Newest decided", epochText(job.decided)],
      ["Newest published", epochText(job.settled)],
      ["Waiting", waiting, job.unpublished > 1 ? "warn" : ""],
      ["Rows a second", compact(job.rows_per_s)],
      ["Decision to visible", seconds(job.delay)],
      job.live ? ["In doubt", count(doubt), "", "Prepared transactions in the targets"] : null,
      ["Drivers so far", job.complete ? count(job.runs) : "…"],
    ])),
    flow(job, here),
    h("section.card", h("header", h("h2", "Timeline of epochs"), h("a", { href: `#/job/${here.job}/epochs` }, "All epochs")),
      h("div", { "data-own": true, id: "timeline" })),
  ];
}

export function ready(main, job, tools, isFirst) {
  const box = main.querySelector("#timeline");
  if (!box) return;
  if (isFirst || !chart) chart = timeline(box, tools.here, { newest: 200 });
  else chart.reload();
}

export function leave() {
  chart?.leave();
  chart = null;
}

function flow(job, here) {
  const { flow: way, sinks, median_phases: phases } = job;
  if (way.epoch === null && !sinks.length) {
    return card("The way of the data", empty("No epoch is through yet", "Sources, operators and sinks are shown once the first one is."));
  }
  const read = way.input_rows === null ? "" : plural(way.input_rows, "row");
  const written = way.rows === null ? "" : plural(way.rows, "row");
  const operators = way.operators.length ? way.operators.map((one) => operatorNode(one, here)) : [node("pipeline", ["keeps no state"])];
  return h("section.card", h("header", h("h2", "The way of the data"), way.epoch === null ? null : h("p.soft.small", `as of epoch ${count(way.epoch)}`)),
    h("div.flow",
      h("section", h("h3", "Sources"), way.sources.length ? way.sources.map(sourceNode) : node("source", ["not reported yet"])),
      arrow(read),
      h("section", h("h3", "Operators"), operators),
      arrow(written),
      h("section", h("h3", "Sinks"), sinks.map(sinkNode))),
    Object.keys(phases).length ? h("div.why", h("h3", "Where the time goes, in a median epoch"), phaseBar(phases, { tall: true }), phaseLegend(phases)) : null);
}

const node = (name, lines, full = name) => h("div.node", h("b", { title: full }, name), lines.filter(Boolean).map((text) => h("span.soft.small.wrap", text)));

function sourceNode(one) {
  const what = one.description || one.kind || "source";
  return node(one.name || shortSource(what), [one.name ? shortSource(what) : "", shortEnd(one.end)], what);
}

function operatorNode(one, here) {
  const keys = one.keys?.length ? `by ${one.keys.map(([name]) => name).join(", ")}` : "";
  const name = one.name || kindText(one.kind);
  return node(h("a", { href: `#/job/${here.job}/state?operator=${one.number}` }, name), [[one.name ? kindText(one.kind) : "", keys].filter(Boolean).join(" "),
    one.rows === null ? "" : `${plural(one.rows, "key")}, ${bytes(one.bytes)}`], name);
}

function sinkNode(sink) {
  const waits = sink.waiting_epochs ? `${plural(sink.waiting_rows, "row")} of ${plural(sink.waiting_epochs, "epoch")} wait` : "nothing waits";
  const box = node(sink.name, [sink.guarantee, waits, sink.in_doubt ? `${plural(sink.in_doubt, "transaction")} in doubt` : "",
    sink.took === null ? "" : `took ${seconds(sink.took)}`]);
  if (sink.waiting_epochs > 1) box.classList.add("warn");
  return box;
}

const arrow = (text) => h("div.arrow", svg("svg", { viewBox: "0 0 60 14", "aria-hidden": "true", preserveAspectRatio: "none" },
  svg("path", { d: "M2 7h54m0 0-6-5m6 5-6 5", "vector-effect": "non-scaling-stroke" })), h("span", text));

const shortSource = (text) => text.length > 60 ? `${text.slice(0, 28)}…${text.slice(-30)}` : text;
const shortEnd = (text) => (text.length > 90 ? `${text.slice(0, 90)}…` : text);
