// Elements. Values from the service are only ever set as text, never parsed as markup.

/**
 * Return a new element.
 * @param {string} tag name, optionally with classes: "p.hint"
 * @param {object} attributes "on…" are listeners, "dataset" an object; false and null are left out
 * @param {...(Node|string|number|null|Array)} children
 */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/** Replace the children of an element if they would look different, so that focus and selection survive. */
export function fill(element, ...children) {
  const next = element.cloneNode(false);
  append(next, children);
  if (next.isEqualNode(element)) return;
  element.replaceChildren(...next.childNodes);
}

const STATES = {
  good: ["serving", "ready", "connected", "cached"],
  busy: ["starting", "reloading", "draining", "drained", "retiring", "restarted", "excluded", "WARNING", "skipped", "disconnected"],
  bad: ["failed", "silent", "stopping", "refused", "ERROR", "unreachable"],
};
const MARKS = { good: "●", busy: "▲", bad: "■", plain: "○" };

/** A state as a pill: color, form and text say the same. */
export function pill(text) {
  const kind = Object.keys(STATES).find((key) => STATES[key].includes(text)) ?? "plain";
  return h(`span.pill.${kind}`, {}, h("span", { "aria-hidden": "true" }, MARKS[kind]), text);
}

export function code(text, title = null) {
  return h("code", { title }, text);
}

/** The name of a model, if it has one: bounded, with its version. Letters from right to left do not reverse the text around them. */
export function name(text) {
  const letters = [...text];
  const shown = letters.length > 12 ? [...letters.slice(0, 6), "…", ...letters.slice(-5)].join("") : text;
  return text && h("bdi.name", { title: text }, shown);
}

export function empty(title, text = "") {
  return h("div.empty", {}, h("p.empty-title", {}, title), text && h("p", {}, text));
}

/** A section with a heading. */
export function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}
