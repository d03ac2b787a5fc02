// Shows the details of the node that is selected in the graph.
"use strict";
(() => {
const nodes = JSON.parse(document.getElementById("data").textContent);
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
  const {title, facts} = nodes[Number(node.dataset.node)];
  const list = document.createElement("dl");
  for (const [name, lines] of facts) list.append(element("dt", name), ...lines.map(line => element("dd", line)));
  details.replaceChildren(element("h2", title), list);
  details.scrollTop = 0;
}

// A wide graph begins with an empty space if its first node is in the middle.
const graph = document.getElementById("graph");
const first = document.querySelector("svg g");
if (first) {
  const box = first.getBBox();
  graph.scrollLeft = box.x + box.width / 2 - graph.clientWidth / 2;
}

document.querySelectorAll("svg g").forEach(node => {
  node.addEventListener("click", () => show(node));
  node.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { show(node); event.preventDefault(); }
  });
});
})();
