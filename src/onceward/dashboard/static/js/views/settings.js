// What the job was asked for, and what its checkpoint has pinned.
import { get } from "../api.js";
import { h } from "../dom.js";
import { card, moment, table } from "../parts.js";

export const load = (here, signal) => get(`jobs/${here.job}/settings`, signal);

const pairs = (values) => h("dl.pairs", Object.entries(values).filter(([, value]) => value !== null && value !== undefined).map(([name, value]) =>
  [h("dt", name.replaceAll("_", " ")), h("dd.wrap", name.endsWith("_at") ? moment(Date.parse(value) / 1000) : String(value))]));

export function render(found) {
  return [
    h("div.columns", card("Checkpoint", pairs(found.identity)),
      card("Driver", Object.keys(found.run).length ? pairs(found.run) : h("p.soft", "No driver answers."))),
    card("Sinks", found.sinks.length ? table("Sinks", [["Sink"], ["Guarantee"], ["By"]], found.sinks.map((one) => [h("span.wrap", one.name), one.guarantee || "–", h("span.wrap", one.mechanism)])) : h("p.soft", "None is known yet.")),
    card("Options of the job", Object.keys(found.options).length ? pairs(found.options) : h("p.soft", "They stand in the job's file: start the dashboard with FILE:JOB to see them.")),
    card("Spark's settings in this checkpoint", Object.keys(found.spark).length ? h("div.why", h("p.soft.small", "Spark goes by these, whatever the session says."), pairs(found.spark)) : h("p.soft", "No epoch is planned yet.")),
  ];
}
