// All jobs at a glance.
import { get } from "../api.js";
import { h } from "../dom.js";
import { compact, epochText, plural, seconds } from "../format.js";
import { ago, empty, sparkline, standing, stats, why } from "../parts.js";

export const load = (here, signal) => get("jobs", signal);

const TROUBLE = ["refused", "failed", "held-back", "silent", "restarting", "catching-up"];
const rank = (job) => { const place = TROUBLE.indexOf(job.standing.kind); return place < 0 ? TROUBLE.length : place; };

export function render({ jobs }) {
  if (!jobs.length) {
    return [h("h1", "Jobs"), h("section.card", empty("No checkpoint yet",
      "Here is no checkpoint of an onceward job so far. One appears here as soon as its job has begun."))];
  }
  const ordered = [...jobs].sort((a, b) => rank(a) - rank(b) || a.job.localeCompare(b.job));
  const running = jobs.filter((job) => job.live).length;
  return [
    h("div.row.apart", h("h1", "Jobs"), h("p.soft", `${plural(jobs.length, "job")}, ${running} with a driver that answers`)),
    h("ul.jobs", ordered.map(line)),
  ];
}

function line(job) {
  const waiting = job.limit ? [job.unpublished, h("small", ` of ${job.limit}`)] : job.unpublished;
  const kind = job.limit && job.unpublished >= job.limit ? "bad" : job.unpublished > 1 ? "warn" : "";
  return h("li.card.job", { "data-key": job.id },
    h("div.who", h("h2", h("a", { href: `#/job/${job.id}` }, job.job)), standing(job.standing),
      h("p.where", job.live || !(job.driver_seen || job.last_seen) ? job.checkpoint : ["last seen ", ago(job.driver_seen || job.last_seen)])),
    stats([
      ["Decided", epochText(job.decided)],
      ["Published", epochText(job.settled)],
      ["Waiting", waiting, kind],
      ["Rows/s", compact(job.rows_per_s)],
      ["To visible", seconds(job.delay)],
      ["Drivers", job.complete ? job.runs || "–" : "…"],
    ]),
    h("div.sparks", sparkline(job.sparks, `Durations of the last ${job.sparks.length} epochs`),
      job.sparks.length > 1 ? h("p.soft.small", `${job.sparks.length} epochs, up to ${seconds(Math.max(...job.sparks))}`) : null),
    ["stopped", "running", "seen"].includes(job.standing.kind) && !job.standing.command ? null : why(job.standing));
}
