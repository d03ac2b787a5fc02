// What the devices can do.

import { fill, h } from "../dom.js";

class Device {
  constructor() {
    this.element = h("div");
  }

  update({ devices }) {
    fill(this.element, devices.map((device) => h(
      "section",
      {},
      h("h2", {}, device.name),
      h("p.hint", {}, `${device.type}, ${device.version}`),
    )));
  }
}

export const device = { id: "device", title: "Device", resources: ["devices"], create: () => new Device() };
