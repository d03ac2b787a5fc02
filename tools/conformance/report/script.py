"""What the HTML report does: filters the results, and makes list entries as they come into view."""

SCRIPT = r"""
"use strict";
(() => {
const CHUNK = 100;
const SELECTS = ["status", "suite", "operation", "check"];
const data = JSON.parse(document.getElementById("data").textContent);
const rows = data.rows.map(([status, suite, name, path, check, reason, seconds, stimulus, expected, got,
                             counted, operations, types, checks]) => ({
  status, suite, name, path, check, reason, seconds, stimulus, expected, got,
  counted: data.lists[counted], operations: data.lists[operations],
  types: data.lists[types], checks: data.lists[checks],
}));
const find = id => document.getElementById(id);
const form = find("filters"), list = find("list"), more = find("more"), expand = find("expand");
let filter = {}, found = [], made = 0;

// Text never becomes markup: names and reasons may hold anything.
function element(tag, className, ...content) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...content);
  return node;
}

function searched(row) {
  row.haystack ??= [row.status, row.suite, row.name, row.path, row.check, row.reason, row.stimulus, row.expected,
                    row.got, row.operations.flat().join(" "), row.types.join(" ")].join("\n").toLowerCase();
  return row.haystack;
}

function matches(row, words) {
  return (!filter.status || row.status === filter.status)
    && (!filter.suite || row.suite === filter.suite)
    && (!filter.operation || row.counted.includes(filter.operation))
    && (!filter.check || (row.status === "failed" && row.check === filter.check))
    && words.every(word => searched(row).includes(word));
}

function entry(row) {
  const name = element("span", "name", row.name, row.path ? ` [${row.path}]` : "");
  const where = element("span", "where", [row.suite, row.counted.join(", ")].filter(Boolean).join(" · "));
  where.title = where.textContent;
  const summary = element("summary", "", element("span", "status " + row.status, row.status), name, where,
                          element("span", "time", duration(row.seconds)));
  if (row.reason && row.status !== "passed") summary.append(element("span", "reason", row.reason));
  const details = element("details", row.status, summary);
  const fill = () => { if (details.children.length === 1) details.append(detail(row)); };
  details.addEventListener("toggle", fill);
  if (expand.checked) { fill(); details.open = true; }
  return element("li", "", details);
}

function duration(seconds) {
  return seconds >= 1 ? `${seconds.toFixed(1)} s` : `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}

function detail(row) {
  const terms = element("dl");
  const add = (term, className, ...content) =>
    terms.append(element("dt", "", term), element("dd", className, ...content));
  if (row.check) add(row.status === "failed" ? "Check" : "Allowance", "", check(row.check));
  if (row.stimulus || row.expected || row.got) {
    add("Stimulus", "value stimulus", row.stimulus);
    add("Expected", "value expected", row.expected);
    add("Got", "value got", row.got);
  } else if (row.reason) {
    add("Reason", "value", row.reason);
  }
  if (row.operations.length) add("Operations", "operations", items(row.operations, placed));
  if (row.types.length) add("Operand types", "", items([...new Set(row.types)], type => [type]));
  const others = row.checks.filter(id => id !== row.check);
  if (others.length) add(row.status === "failed" ? "Also broken" : "Checked", "", items(others, id => [id]));
  if (!terms.children.length) add("Suite", "", row.suite);
  return element("div", "detail", terms);
}

function check(id) {
  return data.checks[id] ? `${id}: ${data.checks[id]}` : id;
}

function placed([name, backend]) {
  return backend ? [name, element("small", "", ` on ${backend}`)] : [name];
}

function items(values, content) {
  return element("ul", "", ...values.map(value => element("li", "", ...content(value))));
}

function showMore() {
  const part = document.createDocumentFragment();
  for (const row of found.slice(made, made + CHUNK)) part.append(entry(row));
  list.append(part);
  made = Math.min(made + CHUNK, found.length);
  more.hidden = made === found.length;
  more.textContent = `Show more (${(found.length - made).toLocaleString("en")} left)`;
}

function show() {
  const words = (filter.text || "").toLowerCase().split(/\s+/).filter(Boolean);
  found = rows.filter(row => matches(row, words));
  made = 0;
  list.replaceChildren();
  const count = found.length.toLocaleString("en"), all = rows.length.toLocaleString("en");
  find("count").textContent = found.length === rows.length ? `All ${all} results`
    : found.length ? `${count} of ${all} results` : `None of ${all} results fits`;
  find("clear").hidden = !Object.keys(filter).length;
  showMore();
}

function read() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  filter = {};
  for (const key of [...SELECTS, "text"]) if (parameters.get(key)) filter[key] = parameters.get(key);
  if (parameters.has("expand")) expand.checked = true;  // links leave it as it is
  for (const key of SELECTS) {
    const select = form.elements[key], value = filter[key] || "";
    if (![...select.options].some(option => option.value === value)) select.add(new Option(value));
    select.value = value;
  }
  if (form.elements.text.value.trim() !== (filter.text || "")) form.elements.text.value = filter.text || "";
  for (const tile of document.querySelectorAll("[data-status]"))
    tile.setAttribute("aria-pressed", tile.dataset.status === (filter.status || ""));
  show();
}

// The address follows the form, so that it can be kept and sent; only links make a step to go back to.
function write() {
  const parameters = new URLSearchParams();
  for (const key of [...SELECTS, "text"]) {
    const value = form.elements[key].value.trim();
    if (value) parameters.set(key, value);
  }
  if (expand.checked) parameters.set("expand", "1");
  history.replaceState(null, "", "#" + parameters);
  read();
}

form.addEventListener("input", write);
form.addEventListener("submit", event => event.preventDefault());
expand.addEventListener("change", write);
find("clear").addEventListener("click", () => { form.reset(); write(); });
for (const tile of document.querySelectorAll("[data-status]"))
  tile.addEventListener("click", () => { form.elements.status.value = tile.dataset.status; write(); });
addEventListener("hashchange", () => { read(); find("results").scrollIntoView(); });
more.addEventListener("click", showMore);
new IntersectionObserver(seen => { if (seen.some(part => part.isIntersecting)) showMore(); },
                         {rootMargin: "600px"}).observe(more);
read();
})();
"""
