// Epochs as stacked phases, by uPlot: drag to zoom, hover to read, click to open. All of it by the keyboard as well.
import { get, query } from "./api.js";
import { h, show } from "./dom.js";
import { compact, count, plural, seconds, tickSeconds, time } from "./format.js";
import { PHASES, empty, phaseLegend, problem } from "./parts.js";

const STACK = [...PHASES, "failed"];
const MEASURES = [["time", "Time"], ["rows", "Rows"]];
const SPANS = [[50, "50"], [200, "200"], [1000, "1,000"], [null, "All"]];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

let library = null;
/** 50 kB, asked for when a chart is first shown. */
function uplot() {
  library ??= new Promise((done, fail) => {
    const script = document.createElement("script");
    script.src = "static/vendor/uPlot.iife.min.js";
    script.onload = () => done(window.uPlot);
    script.onerror = fail;
    document.head.append(script);
  });
  return library;
}

/** In `box`, which it keeps for itself. */
export function timeline(box, here, wanted) {
  const state = { ...wanted, measure: "time", first: null, last: null, data: null, plot: null, at: null, left: false };
  const chart = h("div.chart", { tabindex: "0", role: "group", "aria-label": "Timeline of epochs", onkeydown: (event) => key(event) });
  const told = h("p.hidden");
  const readout = h("div.readout", { "aria-live": "off" });
  const spans = h("div.row", { role: "group", "aria-label": "How many epochs" });
  const measures = h("div.row", { role: "group", "aria-label": "What is drawn" });
  const notes = h("div.notes");
  const legend = h("div");
  box.replaceChildren(h("div.row.apart", legend, h("div.row.far", measures, spans)), h("div.stage", chart, notes), told, readout);
  const resized = new ResizeObserver(() => state.plot?.setSize({ width: chart.clientWidth, height: chart.clientHeight }));
  resized.observe(chart);

  async function reload() {
    const asked = { first: state.first, last: state.last, newest: state.first === null ? state.newest : null, bars: chart.clientWidth < 500 ? 80 : 240 };
    try {
      state.data = await get(`jobs/${here.job}/timeline${query(asked)}`);
    } catch (error) {
      if (!state.plot) show(chart, problem(error));
      return;
    }
    const make = await uplot();
    if (!state.left) draw(make);
  }

  function draw(make) {
    const { data } = state;
    show(spans, SPANS.map(([number, text]) => h("button", { type: "button", "aria-pressed": String(state.first === null && state.newest === number),
      onclick: () => { Object.assign(state, { first: null, last: null, newest: number }); reload(); } }, text)));
    show(legend, state.measure === "rows" ? h("p.soft.small", "rows that were staged, by epoch") : phaseLegend());
    show(measures, MEASURES.map(([name, text]) => h("button", { type: "button", "aria-pressed": String(state.measure === name),
      onclick: () => { state.measure = name; draw(make); } }, text)));
    state.plot?.destroy();
    state.plot = null;
    if (!data.epoch.length) { show(chart, empty("No epoch is written down yet", "An epoch appears here within seconds of its end.")); return; }
    chart.replaceChildren();
    const series = state.measure === "rows" ? [data.epoch.map((_, place) => place), data.rows] : stacked(data);
    cut(series[1]);
    state.plot = new make(options(make), series, chart);
    told.textContent = inWords(data);
    read(state.at === null ? null : Math.min(state.at, data.epoch.length - 1));
  }

  /** A start takes seconds, an epoch a fraction of one: the few that tower over the rest are cut off, and said to be. */
  function cut(heights) {
    const ordered = [...heights].sort((a, b) => a - b);
    const usual = ordered[Math.floor(ordered.length * 0.9)] * 2.5;
    const taller = ordered.filter((height) => height > usual).length;
    state.top = !state.whole && ordered.length >= 10 && ordered.at(-1) > usual * 1.5 ? usual : null;
    show(notes, state.top || state.whole ? h("button.quiet.small", { type: "button", onclick: () => { state.whole = !state.whole; uplot().then(draw); } },
      state.whole ? "Cut off the tallest" : `${plural(taller, "bar")} taller than this: show whole`) : null);
  }

  function options(make) {
    const grid = { stroke: colour("line"), width: 1 };
    const axis = { stroke: colour("soft"), font: `12px ${getComputedStyle(document.body).fontFamily}`, grid, ticks: { show: false } };
    return {
      width: chart.clientWidth, height: chart.clientHeight, legend: { show: false },
      cursor: { points: { show: false }, drag: { x: true, y: false }, y: false },
      scales: { x: { time: false, range: (u, low, high) => [low - 0.6, high + 0.6] }, y: { range: (u, low, high) => [0, state.top || (high || 0.001) * 1.06] } },
      axes: [
        { ...axis, size: 30, grid: { show: false }, values: (u, places) => places.map((place) => Number.isInteger(place) && state.data.from[place] !== undefined ? count(state.data.from[place]) : "") },
        { ...axis, size: 64, values: (u, values) => values.map((value) => (state.measure === "rows" ? compact(value) : tickSeconds(value))) },
      ],
      series: [{}, ...(state.measure === "rows" ? ["publish"] : [...STACK].reverse()).map((name) => ({ fill: colour(name), width: 0, points: { show: false }, paths: make.paths.bars({ size: [0.86, 42], align: 0 }) }))],
      hooks: {
        setCursor: [(u) => read(u.cursor.idx ?? null)],
        setSelect: [(u) => zoom(u)],
        ready: [(u) => u.over.addEventListener("click", () => { if (state.at !== null && !state.dragged) open(state.at); state.dragged = false; })],
      },
    };
  }

  function zoom(u) {
    if (u.select.width < 8) return;
    const last = state.data.epoch.length - 1;
    const low = Math.max(0, Math.ceil(u.posToVal(u.select.left, "x") - 0.5));
    const high = Math.min(last, Math.floor(u.posToVal(u.select.left + u.select.width, "x") + 0.5));
    state.dragged = true;
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (high > low) to(state.data.from[low], state.data.to[high]);
  }

  const to = (first, last) => { Object.assign(state, { first, last }); reload(); };
  const open = (place) => { location.hash = `#/job/${here.job}/epoch/${state.data.epoch[place]}`; };

  function read(place) {
    state.at = place;
    const { data } = state;
    if (place === null || !data) { show(readout, h("p.soft.small", "Hover or use the arrow keys to read an epoch, Enter opens it. Drag to zoom, or + and −.")); return; }
    const phases = Object.fromEntries(PHASES.filter((phase) => data.phases[phase][place] > 0).map((phase) => [phase, data.phases[phase][place]]));
    const span = data.step > 1 ? `slowest of ${count(data.from[place])} to ${count(data.to[place])}: ` : "";
    const failed = data.failures[place] ? `, ${plural(data.failures[place], "attempt")} failed` : "";
    const taken = data.takeovers[place] ? ", taken over" : "";
    show(readout, h("p", span, h("a", { href: `#/job/${here.job}/epoch/${data.epoch[place]}` }, `epoch ${count(data.epoch[place])}`),
      ` · ${data.outcome[place]}${taken}${failed} · ${seconds(data.took[place])} · ${plural(data.rows[place], "row")} · ${time(data.begun[place])}`), phaseLegend(phases));
  }

  function key(event) {
    const { data } = state;
    if (!data?.epoch.length) return;
    const last = data.epoch.length - 1;
    const at = state.at ?? last;
    const step = state.at === null ? 0 : 1;
    const moves = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: last };
    if (event.key in moves) read(Math.max(0, Math.min(last, moves[event.key])));
    else if (event.key === "Enter" && state.at !== null) open(at);
    else if (event.key === "+" || event.key === "=") to(data.from[Math.max(0, at - Math.ceil(last / 4))], data.to[Math.min(last, at + Math.ceil(last / 4))]);
    else if (event.key === "-") to(Math.max(0, data.from[0] - (data.to[last] - data.from[0] + 1)), data.to[last] + (data.to[last] - data.from[0] + 1));
    else return;
    event.preventDefault();
    readout.setAttribute("aria-live", "polite");
  }

  reload();
  return { reload, leave: () => { state.left = true; resized.disconnect(); state.plot?.destroy(); } };
}

/** Sums from below; the highest is drawn first and the others over it. */
function stacked(data) {
  const sums = [];
  let below = data.epoch.map(() => 0);
  for (const name of STACK) {
    const mine = name === "failed" ? data.failed : data.phases[name];
    below = below.map((value, place) => value + (mine[place] || 0));
    sums.push(below);
  }
  return [data.epoch.map((_, place) => place), ...sums.reverse()];
}

function inWords(data) {
  const took = data.took.map((value, place) => [value ?? 0, data.epoch[place]]).sort((a, b) => b[0] - a[0]);
  const failures = data.failures.reduce((sum, one) => sum + one, 0);
  return `Epochs ${data.from[0]} to ${data.to.at(-1)}. The slowest is epoch ${took[0][1]} with ${seconds(took[0][0])}, the median ${seconds(took[Math.floor(took.length / 2)][0])}. ${plural(failures, "attempt")} failed. The table of epochs has all numbers.`;
}
