// What waits in the targets: what becomes of it and why, and doing that by hand after it was said what will happen.
import { get, post } from "../api.js";
import { h } from "../dom.js";
import { age, count, plural } from "../format.js";
import { card, command, empty, labelled, moment, problem, table, verdict } from "../parts.js";

const SOURCES = {
  driver: "asked by the running driver", job: "asked through the job's file",
  files: "by the manifests alone, the targets were not asked",
};
let busy = null;
let looked = null;

/** Targets are asked when the view is opened, and when someone asks: not whenever a number changes. */
export async function load(here, signal) {
  if (looked?.job !== here.job || looked.stale) looked = { job: here.job, data: await get(`jobs/${here.job}/transactions`, signal) };
  return looked.data;
}

export const leave = () => { looked = null; };

export function render(found, tools) {
  const { here, reload } = tools;
  const again = () => { looked.stale = true; reload(); };
  const columns = [["Verdict"], ["Epoch", "number"], ["Slot", "number"], ["Age", "number"], ["Sink"], ["Transaction, and why"], ["By hand"]].slice(0, found.transactions.some((one) => one.actions.length) ? 7 : 6);
  const rows = found.transactions.map((one) => ({ key: one.transaction + one.sink, cells: [
    verdict(one.verdict), h("a", { href: `#/job/${here.job}/epoch/${one.epoch}` }, count(one.epoch)), count(one.slot), age(one.age_s), h("span.wrap", one.sink),
    [h("code.wrap", one.transaction), h("span.small", one.why), one.stray ? h("span.small", `generation ${one.generation}: no start looks at it`) : null],
    one.actions.map((action) => h("button", { type: "button", onclick: () => ask(one, action, tools, again) }, action === "commit" ? "Commit …" : "Abort …"))].slice(0, columns.length) }));
  return [
    h("section.card",
      h("header", h("h2", "Transactions in the targets"), h("div.row", h("p.soft.small", SOURCES[found.source], ", ", moment(found.asked_at)),
        h("button", { type: "button", onclick: again }, "Ask again"))),
      found.error ? h("div.why", labelled("bad", "A target cannot be asked"), h("p.wrap", found.error)) : null,
      rows.length ? table("Transactions", columns, rows) : found.error ? null : empty("Nothing waits", found.source === "files" ? "By its manifests no target should hold a transaction of this job." : "No target holds a transaction of this job."),
      found.more ? h("p.soft.small", `and ${plural(found.more, "more")}`) : null,
      found.why_not ? h("p.soft.small", found.why_not) : null),
    rejected(tools),
    card("Diverted rows", found.diverted.length ? table("Rows that were left out because a target rejects them", [["Epoch", "number"], ["Sink"], ["Rows", "number"], ["Kept in"]],
      found.diverted.map((one) => [h("a", { href: `#/job/${here.job}/epoch/${one.epoch}` }, count(one.epoch)), h("span.wrap", one.sink), count(one.rows), h("code.wrap", one.kept_in)]))
      : h("p.soft", "No row was ever left out.")),
  ];
}

function rejected({ here }) {
  const box = h("div.why", { "data-own": true });
  const look = async () => {
    box.replaceChildren(h("p.soft", "Asking the targets …"));
    try {
      const { rows, more, file } = await get(`jobs/${here.job}/rejected`);
      if (!rows.length) { box.replaceChildren(h("p", "No row of an unpublished epoch is rejected.")); return; }
      box.replaceChildren(table("Rejected rows", [["Epoch", "number"], ["Sink"], ["Slot", "number"], ["Row", "number"], ["Why, and what is in it"]], rows.map((one) =>
        [count(one.epoch), one.sink, count(one.slot), count(one.row), [h("span.wrap", one.why), h("span.small.wrap", Object.entries(one.values).map(([name, value]) => `${name}=${value}`).join(", "))]])),
      h("p.soft.small", more ? `and ${plural(more, "more")}. ` : "", "To leave them out and keep them in a file, with the job stopped:"), command(`onceward poison divert ${file} --to rejected`));
    } catch (error) {
      box.replaceChildren(problem(error));
    }
  };
  return h("section.card", { "data-key": "rejected" }, h("header", h("h2", "Rejected rows"), h("button", { type: "button", onclick: look }, "Look for them")),
    h("p.soft.small", "Rows of the first unpublished epoch that a target does not take. Its target is asked; nothing changes."), box);
}

/** What will happen, then who and why, then the deed. */
async function ask(one, action, { here, about }, again) {
  if (busy) return;
  busy = one.transaction;
  const opener = document.activeElement;
  const told = h("p.wrap", { role: "alert" });
  const close = h("button", { type: "button" }, "Leave it");
  const dialog = h("dialog", { "aria-labelledby": "deed" });
  const end = () => { dialog.close(); dialog.remove(); busy = null; opener?.focus(); };
  close.onclick = end;
  dialog.oncancel = (event) => { event.preventDefault(); end(); };
  document.body.append(dialog);
  const heading = h("h2", { id: "deed" }, action === "commit" ? "Commit by hand" : "Abort by hand");
  let proposal;
  try {
    proposal = await post(`jobs/${here.job}/transactions/propose`, { action, transaction: one.transaction });
  } catch (error) {
    dialog.append(h("form", heading, problem(error), h("div.row", close)));
    dialog.showModal();
    return;
  }
  const because = h("textarea", { id: "because", required: proposal.needs_reason, maxlength: "2000" });
  const who = h("input", { id: "who", maxlength: "200", autocomplete: "name" });
  const act = h(`button.${action === "commit" ? "primary" : "danger"}`, { type: "submit" }, action === "commit" ? "Commit it" : "Abort it");
  const form = h("form", heading, h("code.wrap", one.transaction), h("div.why", h("p", "What will happen:"), h("ul", proposal.lines.map((line) => h("li.wrap", line)))),
    proposal.needs_reason ? [h("div.field", h("label", { for: "because" }, "Why? It is kept in the checkpoint."), because),
      h("div.field", h("label", { for: "who" }, `Who are you? Without a name: ${about.actor}`), who)] : null,
    h("p.soft.small", "Make sure that no driver runs on this checkpoint, unless it is the one that is shown here."), told, h("div.row", act, close));
  form.onsubmit = async (event) => {
    event.preventDefault();
    act.disabled = true;
    told.textContent = "Working …";
    try {
      const { done, settled } = await post(`jobs/${here.job}/transactions/act`, { action, transaction: one.transaction, because: because.value, who: who.value });
      form.replaceChildren(h("h2", { id: "deed" }, done === "committed" ? "Committed" : "Aborted"),
        h("p", done === "committed" ? `Everything up to epoch ${count(settled)} is settled.` : "It is gone from its target; who and why is in the checkpoint (Lives)."), h("div.row", close));
      close.textContent = "Close";
      close.focus();
      again();
    } catch (error) {
      told.textContent = `${error.message} ${error.hint}`;
      act.disabled = false;
    }
  };
  dialog.append(form);
  dialog.showModal();
}
