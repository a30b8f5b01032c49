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
      command(`onceward checkpoints restore ${job.checkpoint} --epoch ${Math.max(0, job.settled)}`)),
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
      told.textContent = "It is being taken; a running job goes on beside it.";
      await follow(here, id, reload);
      told.textContent = "";
    } catch (error) {
      told.textContent = `${error.message}. ${error.hint}`;
    }
  } }, h("div.field", h("label", { for: "folder" }, job.live ? "Folder on the driver's host" : "Folder on the dashboard's host"), folder), h("button.primary", { type: "submit" }, "Take a savepoint"), told);
  const there = saved.savepoints.map((one) => one.path);
  const tasks = saved.tasks.filter((one) => !there.includes(one.path)).map((one) => ({ key: one.id, cells: [labelled(...STATES[one.state]), one.epoch === null ? "–" : count(one.epoch), moment(Date.parse(one.began_at) / 1000),
    one.bytes_total ? `${bytes(one.bytes_done)} of ${bytes(one.bytes_total)}` : bytes(one.bytes_done),
    one.error ? h("span.wrap", `${one.error.message}. ${one.error.hint || ""}`) : h("code.wrap", one.path || one.folder)] }));
  const kept = saved.savepoints.map((one) => ({ key: one.path, cells: one.problem ? [labelled("bad", "Damaged"), "–", "–", "–", [h("code.wrap", one.path), h("span.small.wrap", one.problem)]]
    : [labelled("good", "Done"), count(one.epoch), moment(one.taken_at), bytes(one.bytes), [h("code.wrap", one.path), one.generation === job.generation ? null : h("span.small", `of generation ${one.generation}, before this checkpoint was restored`), restoring(one, saved, job)]] }));
  return card("Savepoints", h("p.soft", "A sealed copy of a published epoch, from which the job can be restored, moved or forked."),
    saved.why_not ? [h("p.soft", saved.why_not), command(`onceward savepoint take ${job.checkpoint} ${saved.folder}`)] : form,
    tasks.length || kept.length ? table("Savepoints of this job", [["State"], ["Epoch", "number"], ["Taken", "only-wide"], ["Bytes", "number only-wide"], ["Where, and how to restore it"]], [...tasks, ...kept])
      : h("p.soft", "None lies where they are looked for."),
    h("p.soft.small.wrap", `Looked for in ${saved.folders.join(", ")}. Others: start the dashboard with --savepoints FOLDER.`));
}

/** Step by step; nothing of it is done from here. */
const restoring = (one, { file }, job) => h("details", h("summary", "Restore it"), h("ol.how",
  h("li", "Is every byte of it as it was taken?", command(`onceward savepoint verify ${one.path}`)),
  h("li", "Stop the job, unless the two are to live side by side.", job.live ? command(`onceward stop ${job.checkpoint}`) : null),
  h("li", "Make a new checkpoint of it. With the job's file the targets are asked first, and what would come twice is said.", command(`onceward savepoint restore ${one.path} ${job.checkpoint}-restored --job ${file || "FILE"}`)),
  h("li", `Give the job that directory as its checkpoint, and start it.`, command(`onceward run ${file || "FILE"}`))));

/** Until it has ended. */
async function follow(here, id, reload) {
  for (;;) {
    await reload();
    const { tasks } = await get(`jobs/${here.job}/savepoints`);
    if (tasks.find((one) => one.id === id)?.state !== "running") { await reload(); return; }
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
