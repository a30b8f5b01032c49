// The shell: which view the address names, when it is loaded again, and what is said when nothing comes.
import { Feed, Refusal, get, post } from "./api.js";
import { h, show } from "./dom.js";
import { loading, problem, standingText, tick } from "./parts.js";
import * as checkpoint from "./views/checkpoint.js";
import * as epoch from "./views/epoch.js";
import * as epochs from "./views/epochs.js";
import * as job from "./views/job.js";
import * as lives from "./views/lives.js";
import * as overview from "./views/overview.js";
import * as settings from "./views/settings.js";
import * as state from "./views/state.js";
import * as summary from "./views/summary.js";
import * as transactions from "./views/transactions.js";

const TABS = [
  ["", "Job", job],
  ["epochs", "Epochs", epochs],
  ["summary", "Summary", summary],
  ["transactions", "Transactions", transactions],
  ["state", "State", state],
  ["checkpoint", "Checkpoint", checkpoint],
  ["lives", "Lives", lives],
  ["settings", "Settings", settings],
];
const main = document.getElementById("main");
const page = { about: {}, view: null, asking: null, again: false, isFirst: true };

const feed = new Feed({
  onState: (state) => freshness(state),
  onJobs: (jobs, changed) => {
    announce(changed);
    const here = page.route;
    if (!here) return;
    if (!here.job || changed.has(here.job)) load();
  },
});

function route() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const params = new URLSearchParams(search || "");
  if (parts[0] !== "job" || !parts[1]) return { view: overview, params, tab: null };
  if (parts[2] === "epoch") return { view: epoch, job: parts[1], epoch: parts[3], params, tab: "epochs" };
  const tab = TABS.find(([name]) => name === (parts[2] || "")) || TABS[0];
  return { view: tab[2], job: parts[1], params, tab: tab[0] };
}

/** Put what a view asks for into the address, without a new entry in the history of the browser. */
function remember(params) {
  const text = params.toString();
  history.replaceState(null, "", `${location.hash.split("?")[0] || "#/"}${text ? `?${text}` : ""}`);
  page.route = route();
  return load();
}

async function open() {
  page.route = route();
  page.asking?.abort();
  page.view?.leave?.();
  page.view = page.route.view;
  page.isFirst = true;
  if (page.about.one && !page.route.job && feed.jobs.size === 1) {
    location.replace(`#/job/${[...feed.jobs.keys()][0]}`);
    return;
  }
  show(main, head(), loading());
  await load();
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

/** Ask for the view's data and show it. One request at a time; what changes meanwhile is asked for afterwards. */
async function load() {
  if (page.asking && !page.asking.signal.aborted) {
    page.again = true;
    return;
  }
  const mine = new AbortController();
  const here = page.route;
  page.asking = mine;
  try {
    const found = await here.view.load(here, mine.signal);
    if (!mine.signal.aborted) await draw(here, found);
  } catch (error) {
    if (mine.signal.aborted) return;
    if (error instanceof Refusal && error.status === 401) login();
    else if (error instanceof Refusal && (page.isFirst || error.status !== 0)) show(main, head(), problem(error));
    else if (!(error instanceof Refusal)) throw error;
  } finally {
    if (page.asking === mine) page.asking = null;
  }
  if (page.again && !mine.signal.aborted) {
    page.again = false;
    await load();
  }
}

async function draw(here, found) {
  const tools = { here, remember, reload: load, about: page.about, redraw: () => draw(here, found) };
  const wasFirst = page.isFirst;
  page.isFirst = false;
  show(main, head(found), here.view.render(found, tools));
  title(here, found);
  here.view.ready?.(main, found, tools, wasFirst);
}

function head(found) {
  const here = page.route;
  if (!here.job) return [];
  const known = feed.jobs.get(here.job) || (found?.standing ? found : null);
  // A link to a job that is gone.
  if (!known && feed.jobs.size) return [];
  const base = `#/job/${here.job}`;
  return [
    job.heading(known, here),
    h("nav.tabs", { "aria-label": "Views of this job" }, TABS.map(([name, text]) =>
      h("a", { href: name ? `${base}/${name}` : base, "aria-current": name === here.tab ? "page" : null }, text))),
  ];
}

function title(here, found) {
  const known = feed.jobs.get(here.job) || found;
  const name = here.job ? known?.job || "job" : "Jobs";
  const tab = here.epoch ? `epoch ${here.epoch}` : TABS.find(([one]) => one === here.tab)?.[1];
  document.title = [here.job && tab, name, "onceward"].filter(Boolean).join(" · ");
  const crumbs = here.job
    ? [page.about.one ? null : [h("a", { href: "#/" }, "Jobs"), " / "], h("b", name), here.epoch ? [" / ", `epoch ${here.epoch}`] : null]
    : h("b", "Jobs");
  show(document.getElementById("crumbs"), crumbs);
}

const standings = new Map();
/** Only a job that comes to stand otherwise is told to who listens: numbers change every second. */
function announce(changed) {
  const told = [];
  for (const one of changed.values()) {
    const before = standings.get(one.id);
    standings.set(one.id, one.standing.kind);
    if (before && before !== one.standing.kind) told.push(`${one.job}: ${standingText(one.standing)}`);
  }
  if (told.length) notice(told.join("; "), 6000);
}

let clearing;
function notice(text, forMs = 0) {
  const box = document.getElementById("notice");
  clearTimeout(clearing);
  box.textContent = text;
  if (forMs) clearing = setTimeout(() => { box.textContent = ""; }, forMs);
}

function freshness(state) {
  const box = document.getElementById("freshness");
  if (box.dataset.state !== state) {
    if (state === "lost") notice("The dashboard does not answer. What is shown is the last that was seen; trying again …");
    else if (box.dataset.state === "lost") { notice(""); if (page.route) load(); }
  }
  box.dataset.state = state;
  main.classList.toggle("stale", state === "lost");
  show(box, h("span", state === "live" ? "Live" : "Connection lost"));
}

function login() {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const told = h("p.small", { role: "alert" });
  const form = h("form.card.narrow", { "data-own": true, onsubmit: async (event) => {
    event.preventDefault();
    try {
      await post("login", { token: field.value.trim() });
      await start();
    } catch (error) {
      told.textContent = `${error.message}. ${error.hint}`;
    }
  } }, h("h1", "A token, please"),
  h("p.soft", "Open the address that the command has printed: it has the token in it. Or give the token here."),
  h("div.field", h("label", { for: "token" }, "Token"), field), told, h("div.row", h("button.primary", { type: "submit" }, "Enter")));
  show(main, form);
  document.title = "onceward";
}

async function start() {
  const asked = get("jobs").catch(() => null);
  try {
    page.about = await get("about");
  } catch (error) {
    if (error.status === 401) login();
    else { show(main, problem(error)); setTimeout(start, 3000); }
    return;
  }
  const first = await asked;
  for (const one of first?.jobs || []) { feed.jobs.set(one.id, one); standings.set(one.id, one.standing.kind); }
  feed.open();
  await open();
}

addEventListener("hashchange", open);
addEventListener("theme", () => page.route && load());
setInterval(tick, 1000);
start();
