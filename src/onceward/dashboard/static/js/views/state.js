// What the job keeps from one epoch to the next: its operators by name, and their entries by key.
import { get, query } from "../api.js";
import { h, show } from "../dom.js";
import { bytes, count } from "../format.js";
import { card, command, empty, kindText, problem, table } from "../parts.js";

const ROWS = [50, 200, 500];
let looking = 0;

export const load = (here, signal) => get(`jobs/${here.job}/state`, signal);

export const leave = () => { looking += 1; };

export function render(found, { here }) {
  if (!found.operators.length) return card("State", empty("Nothing is kept", "The job has no operator that keeps state, or its first epoch is not through yet."));
  const chosen = choice(found, here.params);
  return [
    card("Operators that keep state", table("Operators", [["Operator"], ["Kind", "only-wide"], ["Key"], ["Keys", "number"], ["Bytes", "number only-wide"], ["Partitions", "number only-wide"], ["Entries"]],
      found.operators.map((one) => ({ key: String(one.number), cells: [h("b.wrap", one.name || `operator ${one.number}`), kindText(one.kind), h("span.wrap", one.keys ? one.keys.map((key) => key.join(" ")).join(", ") : "–"),
        count(one.rows), bytes(one.bytes), count(one.partitions),
        one.parts.map((part) => h("a.button", { href: `#/job/${here.job}/state?${new URLSearchParams({ operator: one.number, part, epoch: here.params.get("epoch") || "" })}`, "aria-current": one === chosen?.operator && part === chosen.part ? "true" : null }, part ? `Browse ${part}` : "Browse"))] })))),
    chosen ? browse(found, chosen, here) : null,
  ];
}

function choice(found, params) {
  const operator = found.operators.find((one) => String(one.number) === params.get("operator")) || found.operators[0];
  const part = operator.parts.includes(params.get("part")) ? params.get("part") : operator.parts[0];
  return part === undefined ? null : { operator, part };
}

/** A form of its own: it stays as it is while numbers change around it. */
function browse(found, { operator, part }, here) {
  const name = `${operator.name || kindText(operator.kind)}${part ? `, ${part}` : ""}`;
  const field = (id, label, input) => h("div.field", h("label", { for: id }, label), input);
  const epoch = h("input", { id: "epoch", type: "number", min: found.first ?? 0, max: found.epoch, placeholder: `newest (${count(found.epoch)})`, value: here.params.get("epoch") || "" });
  const rows = h("select", { id: "rows" }, ROWS.map((number) => h("option", { value: number }, number)));
  const keys = operator.keys
    ? operator.keys.map(([key, type], place) => ({ key, input: h("input", { id: `key-${place}`, placeholder: type, maxlength: "900", value: value(here.params, key) }) }))
    : [{ key: null, input: h("input", { id: "key-0", placeholder: "NAME=VALUE", maxlength: "900" }) }];
  const wanted = () => keys.filter(({ input }) => input.value !== "").map(({ key, input }) => (key === null ? input.value : `${key}=${input.value}`));
  const box = h("div.why", { "aria-live": "polite" });
  const form = h("form.filters", { onsubmit: (event) => {
    event.preventDefault();
    look(box, here, { operator: operator.number, part, epoch: epoch.value, rows: rows.value }, wanted());
  } }, keys.map(({ key, input }, place) => field(`key-${place}`, key === null ? "Key" : `Key: ${key}`, input)), field("epoch", "At the end of epoch", epoch), field("rows", "Rows", rows),
  h("button.primary", { type: "submit" }, "Look"));
  const least = `Epochs ${count(found.first)} to ${count(found.epoch)} are there.`;
  return h("section.card", { "data-own": true, "data-key": `${operator.number}-${part}` }, h("header", h("h2.wrap", `Entries of ${name}`)), form,
    h("p.soft.small", found.is_warm ? least : `${least} Only Spark can read state: the first look starts one on the dashboard's host, which takes some seconds. The job is not touched.`), box,
    h("p.soft.small", "All of it, on a terminal or as Parquet files (state export):"), command(`${found.command} --operator ${operator.number}`));
}

const value = (params, key) => params.getAll("key").find((one) => one.startsWith(`${key}=`))?.slice(key.length + 1) || "";

/** Asked for again and again until it is done, or another look, or another view, takes its place. */
async function look(box, here, wanted, keys) {
  looking += 1;
  const mine = looking;
  const asked = `${query(wanted)}${keys.map((key) => `&key=${encodeURIComponent(key)}`).join("")}`;
  try {
    for (;;) {
      const found = await get(`jobs/${here.job}/state/entries${asked}`);
      if (mine !== looking) return;
      if (found.stage === "done") { done(box, found); return; }
      const said = found.stage === "starting" ? "Starting Spark" : "Reading";
      show(box, h("p.soft", { role: "status" }, `${said} … ${Math.round(found.since_s)} s`));
      await new Promise((go) => { setTimeout(go, 500); });
      if (mine !== looking) return;
    }
  } catch (error) {
    if (mine === looking) show(box, problem(error));
  }
}

function done(box, found) {
  if (!found.rows.length) { show(box, empty("No such entry", `At the end of epoch ${count(found.epoch)} the state has none with this key.`)); return; }
  show(box, table(`State at the end of epoch ${count(found.epoch)}, by key`, found.columns.map((column) => [column]), found.rows.map((row) => row.map((cell) => h("span.wrap", cell))), { visible: true }),
    found.has_more ? h("p.soft.small", "There are more: give a key, or more rows.") : null);
}
