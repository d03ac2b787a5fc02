// Filters the results, and adds list entries as they come into view.
"use strict";
(() => {
const CHUNK = 100;
const SELECTS = ["status", "suite", "operation", "backend", "check"];
const data = JSON.parse(document.getElementById("data").textContent);
const rows = data.rows.map(([status, suite, name, path, check, reason, seconds, stimulus, expected, got,
                             counted, operations, types, checks]) => ({
  status, suite, name, path, check, reason, seconds, stimulus, expected, got,
  counted: data.lists[counted], operations: data.lists[operations],
  types: data.lists[types], checks: data.lists[checks],
}));
const byId = id => document.getElementById(id);
const form = byId("filters"), list = byId("list"), more = byId("more"), expand = byId("expand");
let filter = {}, matching = [], listed = 0;

// Content is added as text nodes, never as markup: names and reasons may contain anything.
function element(tag, className, ...content) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...content);
  return node;
}

function searchText(row) {
  row.haystack ??= [row.status, row.suite, row.name, row.path, row.check, row.reason, row.stimulus, row.expected,
                    row.got, row.operations.flat().join(" "), row.types.join(" ")].join("\n").toLowerCase();
  return row.haystack;
}

function matches(row, words) {
  return (!filter.status || row.status === filter.status)
    && (!filter.suite || row.suite === filter.suite)
    && (!filter.operation || row.counted.includes(filter.operation))
    && (!filter.backend || row.operations.some(([name, backend]) =>
          backend === filter.backend && row.counted.includes(name)))
    && (!filter.check || (row.status === "failed" && row.check === filter.check))
    && words.every(word => searchText(row).includes(word));
}

function resultItem(row) {
  const name = element("span", "name", row.name, row.path ? ` [${row.path}]` : "");
  const where = element("span", "where", [row.suite, row.counted.join(", ")].filter(Boolean).join(" · "));
  where.title = where.textContent;
  const summary = element("summary", "", element("span", "status " + row.status, row.status), name, where,
                          element("span", "time", duration(row.seconds)));
  if (row.reason && row.status !== "passed") summary.append(element("span", "reason", row.reason));
  const details = element("details", row.status, summary);
  const addDetails = () => { if (details.children.length === 1) details.append(detailsOf(row)); };
  details.addEventListener("toggle", addDetails);
  if (expand.checked) { addDetails(); details.open = true; }
  return element("li", "", details);
}

function duration(seconds) {
  return seconds >= 1 ? `${seconds.toFixed(1)} s` : `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}

function detailsOf(row) {
  const terms = element("dl");
  const add = (term, className, ...content) =>
    terms.append(element("dt", "", term), element("dd", className, ...content));
  if (row.check) add(row.status === "failed" ? "Check" : "Allowance", "", checkText(row.check));
  if (row.stimulus || row.expected || row.got) {
    add("Stimulus", "value stimulus", row.stimulus);
    add("Expected", "value expected", row.expected);
    add("Got", "value got", row.got);
  } else if (row.reason) {
    add("Reason", "value", row.reason);
  }
  if (row.operations.length) add("Operations", "operations", itemList(row.operations, operationOnBackend));
  if (row.types.length) add("Operand types", "", itemList([...new Set(row.types)], type => [type]));
  const others = row.checks.filter(id => id !== row.check);
  if (others.length) add(row.status === "failed" ? "Also broken" : "Checked", "", itemList(others, id => [id]));
  if (!terms.children.length) add("Suite", "", row.suite);
  return element("div", "detail", terms);
}

function checkText(id) {
  return data.checks[id] ? `${id}: ${data.checks[id]}` : id;
}

function operationOnBackend([name, backend]) {
  return backend ? [name, element("small", "", ` on ${backend}`)] : [name];
}

function itemList(values, content) {
  return element("ul", "", ...values.map(value => element("li", "", ...content(value))));
}

function showMore() {
  const fragment = document.createDocumentFragment();
  for (const row of matching.slice(listed, listed + CHUNK)) fragment.append(resultItem(row));
  list.append(fragment);
  listed = Math.min(listed + CHUNK, matching.length);
  more.hidden = listed === matching.length;
  more.textContent = `Show more (${(matching.length - listed).toLocaleString("en")} left)`;
}

function refresh() {
  const words = (filter.text || "").toLowerCase().split(/\s+/).filter(Boolean);
  matching = rows.filter(row => matches(row, words));
  listed = 0;
  list.replaceChildren();
  const count = matching.length.toLocaleString("en"), all = rows.length.toLocaleString("en");
  byId("count").textContent = matching.length === rows.length ? `All ${all} results`
    : matching.length ? `${count} of ${all} results` : `None of ${all} results matches`;
  byId("clear").hidden = !Object.keys(filter).length;
  showMore();
}

function applyAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  filter = {};
  for (const key of [...SELECTS, "text"]) if (parameters.get(key)) filter[key] = parameters.get(key);
  if (parameters.has("expand")) expand.checked = true;  // links keep the checkbox
  for (const key of SELECTS) {
    const select = form.elements[key], value = filter[key] || "";
    if (![...select.options].some(option => option.value === value)) select.add(new Option(value));
    select.value = value;
  }
  if (form.elements.text.value.trim() !== (filter.text || "")) form.elements.text.value = filter.text || "";
  for (const tile of document.querySelectorAll("[data-status]"))
    tile.setAttribute("aria-pressed", tile.dataset.status === (filter.status || ""));
  refresh();
}

// Keeps the address in step with the form, so that it can be bookmarked. Only links add entries to the history.
function updateAddress() {
  const parameters = new URLSearchParams();
  for (const key of [...SELECTS, "text"]) {
    const value = form.elements[key].value.trim();
    if (value) parameters.set(key, value);
  }
  if (expand.checked) parameters.set("expand", "1");
  history.replaceState(null, "", "#" + parameters);
  applyAddress();
}

form.addEventListener("input", updateAddress);
form.addEventListener("submit", event => event.preventDefault());
expand.addEventListener("change", updateAddress);
byId("clear").addEventListener("click", () => { form.reset(); updateAddress(); });
for (const tile of document.querySelectorAll("[data-status]"))
  tile.addEventListener("click", () => { form.elements.status.value = tile.dataset.status; updateAddress(); });
addEventListener("hashchange", () => { applyAddress(); byId("results").scrollIntoView(); });
more.addEventListener("click", showMore);
new IntersectionObserver(entries => { if (entries.some(entry => entry.isIntersecting)) showMore(); },
                         {rootMargin: "600px"}).observe(more);
applyAddress();
})();
