// Backends of each device, with the reasons of those that are not used.

import { fill, h, pill } from "../dom.js";

class Backends {
  constructor() {
    this.element = h("div");
  }

  update({ devices }) {
    fill(this.element, devices.map((device) => h(
      "section",
      {},
      h("h2", {}, `Device ${device.name}`),
      h("p.hint", {}, `${device.type}, ${device.version}`),
      h("ol.cards", {}, device.backends.map(card)),
    )));
  }
}

function card(backend) {
  const facts = [
    ["Version", backend.version],
    ["Origin", backend.origin],
    ["Interface", backend.api_version],
    ["Can", backend.capabilities.join(", ")],
    ...Object.entries(backend.hardware),
    ["Quarantined models", backend.quarantined_models || ""],
  ];
  return h(
    "li.card",
    {},
    h("h3", {}, backend.id || "unknown", pill(backend.state)),
    backend.reason && h("p.reason", {}, backend.reason),
    h("dl.facts", {}, facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
  );
}

export const backends = { id: "backends", title: "Backends", resources: ["devices"], create: () => new Backends() };
