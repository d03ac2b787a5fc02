// Shows the details of the operation that is selected in the graph.
"use strict";
(() => {
const rows = JSON.parse(document.getElementById("data").textContent);
const details = document.getElementById("details");

// Content is added as text nodes, never as markup: names and reasons may contain anything.
function element(tag, content) {
  const node = document.createElement(tag);
  node.textContent = content;
  return node;
}

function show(node) {
  document.querySelectorAll("svg g[aria-pressed=true]").forEach(other => other.setAttribute("aria-pressed", "false"));
  node.setAttribute("aria-pressed", "true");
  const row = rows[Number(node.dataset.operation)];
  const list = document.createElement("dl");
  const add = (name, values) => values.forEach((value, i) =>
    list.append(...(i ? [] : [element("dt", name)]), element("dd", value)));
  add("from", row.origin ? [row.origin] : []);
  add("inputs", row.inputs);
  add("outputs", row.outputs);
  add("time", row.time ? [row.time] : []);
  add("runs on", [row.backend ? row.backend + ", partition " + row.partition : "no backend: it is not supported"]);
  for (const refusal of row.refusals) {
    add(refusal.backend + " does not support it", [refusal.reason]);
    add("nearest supported by " + refusal.backend, refusal.nearest ? [refusal.nearest] : []);
  }
  details.replaceChildren(element("h2", row.operation + " " + row.type), list);
}

document.querySelectorAll("svg g").forEach(node => {
  node.addEventListener("click", () => show(node));
  node.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { show(node); event.preventDefault(); }
  });
});
})();
