// Is the checkpoint whole, where can it be resumed, and how is it taken back?
import { get, post } from "../api.js";
import { h } from "../dom.js";
import { bytes, count, epochText } from "../format.js";
import { card, command, labelled, moment, problem, stats, table } from "../parts.js";

export async function load(here, signal) {
  const [job, saved] = await Promise.all([get(`jobs/${here.job}`, signal), get(`jobs/${here.job}/savepoints`, signal)]);
  return { ...job, saved };
}

export function render(job, { here, reload }) {
  return [
    h("section.card", { "aria-label": "Where it stands" }, stats([["Planned", epochText(job.planned)], ["Decided", epochText(job.decided)], ["Published", epochText(job.settled)], ["Unpublished", count(job.unpublished)]]),
      h("dl.pairs", h("dt", "Directory"), h("dd", h("code.wrap", job.checkpoint)), h("dt", "Generation"), h("dd", h("code", job.generation || "–")))),
    savepoints(job, here, reload),
    verify(here),
    card("Take it back", h("p.soft", "A stopped checkpoint can be taken back to an earlier epoch. What comes after it is moved aside, not removed; the command says first what would be delivered twice."),
      command(`onceward checkpoints restore ${job.checkpoint} --epoch ${Math.max(0, job.settled)}`),
      h("p.soft", "What the state was at the end of an epoch, by operator and key:"), command(`onceward status ${job.checkpoint} --state`)),
  ];
}

const STATES = { running: ["busy", "Being taken"], done: ["good", "Done"], failed: ["bad", "Failed"] };

function savepoints(job, here, reload) {
  const { saved } = job;
  const told = h("p.small", { role: "alert" });
  const folder = h("input", { id: "folder", value: saved.folder, required: true, size: "48" });
  const form = h("form.filters", { "data-own": true, "data-key": "take", onsubmit: async (event) => {
    event.preventDefault();
    try {
      const { id } = await post(`jobs/${here.job}/savepoints`, { folder: folder.value.trim() });
      told.textContent = "It is being taken, beside the running job.";
      await follow(here, id, reload);
      told.textContent = "";
    } catch (error) {
      told.textContent = `${error.message}. ${error.hint}`;
    }
  } }, h("div.field", h("label", { for: "folder" }, "Folder on the driver's host"), folder), h("button.primary", { type: "submit" }, "Take a savepoint"), told);
  const lines = saved.savepoints.map((one) => ({ key: one.id, cells: [labelled(...STATES[one.state]), one.epoch === null ? "–" : count(one.epoch), moment(Date.parse(one.began_at) / 1000),
    one.bytes_total ? `${bytes(one.bytes_done)} of ${bytes(one.bytes_total)}` : bytes(one.bytes_done),
    one.error ? h("span.wrap", `${one.error.message}. ${one.error.hint || ""}`) : one.path ? command(`onceward savepoint restore ${one.path} NEW-CHECKPOINT`) : h("span.wrap", one.folder)] }));
  return card("Savepoints", h("p.soft", "A sealed copy of a published epoch, from which the job can be restored, moved or forked."),
    saved.why_not ? [h("p.soft", saved.why_not), command(`onceward savepoint take ${job.checkpoint} ${saved.folder}`)] : form,
    lines.length ? table("Savepoints of this run", [["State"], ["Epoch", "number"], ["Asked for"], ["Copied"], ["To restore it"]], lines) : null);
}

/** Until it has ended. */
async function follow(here, id, reload) {
  for (;;) {
    await reload();
    const { savepoints: all } = await get(`jobs/${here.job}/savepoints`);
    if (all.find((one) => one.id === id)?.state !== "running") { await reload(); return; }
    await new Promise((done) => { setTimeout(done, 700); });
  }
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
