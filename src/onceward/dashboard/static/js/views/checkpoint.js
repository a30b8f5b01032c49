// Is the checkpoint whole, where can it be resumed, and how is it taken back?
import { get } from "../api.js";
import { h } from "../dom.js";
import { count, epochText } from "../format.js";
import { card, command, labelled, problem, stats, table } from "../parts.js";

export const load = (here, signal) => get(`jobs/${here.job}`, signal);

export function render(job, { here }) {
  return [
    h("section.card", { "aria-label": "Where it stands" }, stats([["Planned", epochText(job.planned)], ["Decided", epochText(job.decided)], ["Published", epochText(job.settled)], ["Unpublished", count(job.unpublished)]]),
      h("dl.pairs", h("dt", "Directory"), h("dd", h("code.wrap", job.checkpoint)), h("dt", "Generation"), h("dd", h("code", job.generation || "–")))),
    verify(here),
    card("Take it back", h("p.soft", "A stopped checkpoint can be taken back to an earlier epoch. What comes after it is moved aside, not removed; the command says first what would be delivered twice."),
      command(`onceward checkpoints restore ${job.checkpoint} --epoch ${Math.max(0, job.settled)}`),
      h("p.soft", "What the state was at the end of an epoch, by operator and key:"), command(`onceward status ${job.checkpoint} --state`)),
  ];
}

function verify(here) {
  const box = h("div.why", { "data-own": true, "data-key": "verify" });
  const look = (quick) => async () => {
    box.replaceChildren(h("p.soft", { role: "status" }, "Reading …"));
    try {
      const report = await get(`jobs/${here.job}/verify?quick=${quick}`);
      box.replaceChildren(h("div.row", labelled(report.resumable ? "good" : "bad", report.resumable ? "Whole" : "Damaged"), h("p.wrap", report.verdict)),
        report.findings.length ? table("Findings", [["Severity"], ["File"], ["What"], ["What to do"]], report.findings.map((one) =>
          [labelled(one.severity === "error" ? "bad" : one.severity === "warning" ? "warn" : "good", one.severity), h("code.wrap", one.about), h("span.wrap", one.detail), h("span.wrap", one.fix || "–")])) : "");
    } catch (error) {
      box.replaceChildren(problem(error));
    }
  };
  return h("section.card", h("header", h("h2", "Is it whole?"), h("div.row", h("button", { type: "button", onclick: look(true) }, "Logs only"), h("button.primary", { type: "button", onclick: look(false) }, "Everything"))),
    h("p.soft", "Reads Spark's logs, lists and state with their checksums, and onceward's own files. Nothing is changed; the job may run."), box);
}
