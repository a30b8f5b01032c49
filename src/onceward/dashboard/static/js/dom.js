// Elements from values. All that comes from a job goes in as text: there is no way here to make markup of it.
const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = Symbol("handlers");

/** h("p.soft", {id: "x", onclick: f}, "text", child, [children], null) */
export function h(tag, ...rest) {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name);
  if (classes.length) node.className = classes.join(" ");
  return filled(node, rest);
}

export function svg(tag, ...rest) {
  return filled(document.createElementNS(SVG, tag), rest);
}

function filled(node, rest) {
  const given = rest.length && isOptions(rest[0]) ? rest.shift() : {};
  for (const [key, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) handle(node, key, value);
    else if (key === "grow") node.style.flexGrow = value;
    else if (key === "class") node.classList.add(...String(value).split(" ").filter(Boolean));
    else node.setAttribute(key, value === true ? "" : value);
  }
  append(node, rest);
  return node;
}

const isOptions = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Node);

function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(node, child);
    else if (child instanceof Node) node.append(child);
    else if (child !== null && child !== undefined && child !== false) node.append(document.createTextNode(String(child)));
  }
}

function handle(node, key, act) {
  node[HANDLERS] = { ...node[HANDLERS], [key]: act };
  node[key] = act;
}

/** Make what stands in `box` like `children`, touching only what differs: focus, selection and scrolling stay. */
export function show(box, ...children) {
  const fresh = document.createDocumentFragment();
  append(fresh, children);
  morphChildren(box, fresh);
}

/** What has a key is found again by it, wherever it stands now: a line more above does not make all others anew. */
function morphChildren(old, fresh) {
  const wanted = [...fresh.childNodes];
  const keys = new Set(wanted.map(keyOf).filter(Boolean));
  const there = new Map([...old.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
  wanted.forEach((node, place) => {
    const known = there.get(keyOf(node));
    if (known && known !== old.childNodes[place] && isLike(known, node)) old.insertBefore(known, old.childNodes[place] || null);
    const now = old.childNodes[place];
    if (!now) old.append(node);
    else if (isLike(now, node)) morph(now, node);
    else if (keys.has(keyOf(now))) old.insertBefore(node, now);
    else now.replaceWith(node);
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

const keyOf = (node) => node.getAttribute?.("data-key") || null;

function isLike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName &&
    (a.nodeType !== Node.ELEMENT_NODE || (a.getAttribute("data-key") === b.getAttribute("data-key")));
}

function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  // A chart, or a form that someone is filling in, looks after itself.
  if (old.hasAttribute("data-own")) return;
  // Style goes by its properties: as an attribute the page's policy refuses it. What someone has unfolded stays open.
  for (const { name } of [...old.attributes]) if (name !== "style" && name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style && old.style.flexGrow !== fresh.style.flexGrow) old.style.flexGrow = fresh.style.flexGrow;
  for (const key of Object.keys(old[HANDLERS] || {})) if (!fresh[HANDLERS]?.[key]) old[key] = null;
  for (const [key, act] of Object.entries(fresh[HANDLERS] || {})) handle(old, key, act);
  morphChildren(old, fresh);
}
