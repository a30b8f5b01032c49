// The lives of a job: restarts, drivers, what people did, and what the next start does first.
import { get } from "../api.js";
import { h } from "../dom.js";
import { age, count, epochText, plural } from "../format.js";
import { card, empty, labelled, moment, problem, table } from "../parts.js";

export const load = (here, signal) => get(`jobs/${here.job}/lives`, signal);

const HOW = { stopped: ["", "Stopped"], failed: ["bad", "Failed"], refused: ["bad", "Refused"], killed: ["bad", "Killed"], hung: ["bad", "Hung"], vanished: ["warn", "Vanished"] };
const THEN = { restart: "started again", "gave-up": "gave up", end: "left so" };

export function render(found) {
  return [next(found.next_start), restarts(found.lives), drivers(found.runs), actions(found.actions)];
}

function next(plan) {
  if (!plan) return null;
  if (plan.refusal) return card("What the next start does first", problem({ kind: plan.refusal.error, message: plan.refusal.message, hint: plan.refusal.hint }));
  return card("What the next start does first", plan.steps.length
    ? table("Steps of the recovery", [["Epoch", "number"], ["Step"]], plan.steps.map((step) => [step.epoch === null ? "–" : count(step.epoch), h("span.wrap", step.what)]))
    : h("p.soft", "Nothing is left over: it goes on with the next epoch."),
  h("p.soft.small", "By the files alone. The start itself also asks the targets for receipts."));
}

function restarts(lives) {
  if (!lives.length) return card("Restarts", h("p.soft", "The job has no restart strategy, so nobody keeps a record of its lives. The drivers below are those that the history knows."));
  return card("Restarts", table("Lives", [["Life", "number"], ["Began"], ["Lasted", "number"], ["Ended"], ["Then"], ["Published up to", "number"], ["Error", "only-wide"]], lives.map((one) => ({ key: String(one.number), cells: [
    count(one.number), moment(one.began), one.ended ? age(one.lived_s) : "–", one.how ? labelled(...(HOW[one.how] || ["", one.how])) : labelled("good", "Alive, or vanished"),
    THEN[one.then] || "–", one.settled === null ? "–" : epochText(one.settled), h("span.wrap", [one.signal, one.error, one.message].filter(Boolean).join(": ") || "–")] }))));
}

function drivers(runs) {
  if (!runs.length) return card("Drivers", empty("None has left a trace yet", "A driver appears here with its first epoch."));
  return card("Drivers", table("Drivers in the history", [["Run"], ["From"], ["To"], ["Epochs", "number"], ["Settled", "number"], ["Failed", "number"], ["Taken over", "number only-wide"], ["By recovery", "number only-wide"], ["Rows", "number only-widest"]],
    runs.map((one) => ({ key: one.run, cells: [h("code", one.run), moment(one.since), moment(one.until), `${count(one.first)}–${count(one.last)}`, count(one.settled), count(one.failed), count(one.taken_over), count(one.recovered), count(one.rows)] }))),
  h("p.soft.small", `${plural(runs.length, "driver")}. Taken over: epochs that another driver had begun. By recovery: epochs that another one had decided, and this one published.`));
}

function actions(list) {
  if (!list.length) return card("What people did", h("p.soft", "Nobody has resolved, aborted or restored anything."));
  return card("What people did", table("Actions of operators", [["When"], ["What"], ["Who"], ["Why"]], list.map((one) => [
    moment(one.at), [h("span.wrap", one.what), one.withdrawn ? h("span.small", "withdrawn") : null, one.shown.slice(0, 3).map((line) => h("span.small.wrap", line))], h("span.wrap", one.by), h("span.wrap", one.because)])));
}
