// What the devices can do: operations by backend, performance, extensions.

import { code, fill, h } from "../dom.js";
import { Table } from "../table.js";

const MARKS = { yes: ["good", "●", ""], depends: ["busy", "▲", "depends: "], no: ["bad", "■", ""] };

/** The operations and the performance of one device. */
class DeviceAbilities {
  constructor(name, backends) {
    this.backends = backends;
    this.facts = h("dl.facts");
    this.operations = new Table(
      `Operations of ${name}`,
      [
        { title: "Operation", value: (row) => row.operation, code: true },
        ...backends.map((backend) => ({
          title: backend,
          value: (row) => text(row, backend),
          cell: (row) => answers(row, backend),
        })),
      ],
      (row) => row.operation,
      { sort: 0, empty: ["No operations", ""] },
    );
    this.performance = new Table(
      `Performance of ${name}`,
      [
        { title: "Operands", value: (row) => row.type, code: true },
        { title: "Time, CPU = 1", value: (row) => row.exec_time, cell: (row) => row.exec_time.toPrecision(3), number: true },
        { title: "Power, CPU = 1", value: (row) => row.power_usage, cell: (row) => row.power_usage.toPrecision(3), number: true },
      ],
      (row) => row.type,
      { sort: 1 },
    );
    this.element = h(
      "section",
      {},
      h("h2", {}, `Device ${name}`),
      this.facts,
      h("h3", {}, "Operations"),
      h("p.hint", {}, "Support without a model, by type of the leading operand. Where it depends on shapes and constants, ", code("nnhal explain"), " tells for a model."),
      this.operations.element,
      h("h3", {}, "Performance"),
      h("p.hint", {}, "Figures that the device reports to clients, relative to the CPU. Less is better."),
      this.performance.element,
    );
  }

  update(device, ability) {
    const facts = [
      ["Type", device.type],
      ["Version", device.version],
      ["Extensions", device.extensions.join(", ") || "none"],
    ];
    fill(this.facts, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    this.operations.update(grouped(ability.operations));
    this.performance.update(ability.performance);
  }
}

class Device {
  constructor() {
    this.element = h("div");
    this.devices = new Map();
    this.names = "";
  }

  update({ devices, abilities }) {
    const ready = (device) => device.backends.filter((backend) => backend.state === "ready").map((backend) => backend.id);
    const names = JSON.stringify(devices.map((device) => [device.name, ready(device)]));
    if (names !== this.names) {
      this.names = names;
      this.devices = new Map(devices.map((device) => [device.name, new DeviceAbilities(device.name, ready(device))]));
      this.element.replaceChildren(...[...this.devices.values()].map((each) => each.element));
    }
    for (const device of devices) {
      const ability = abilities.find((each) => each.device === device.name);
      if (ability) this.devices.get(device.name).update(device, ability);
    }
  }
}

/** Return one row for each operation: its types by backend and answer. */
function grouped(operations) {
  const rows = new Map();
  for (const { operation, type, answers, reasons } of operations) {
    const row = rows.get(operation) ?? { operation, byBackend: {}, isDriver: true };
    rows.set(operation, row);
    for (const [backend, answer] of Object.entries(answers)) {
      row.isDriver = false;
      const cell = (row.byBackend[backend] ??= { yes: [], depends: [], no: [], reasons: new Set() });
      cell[answer].push(shortType(type));
      if (reasons[backend]) cell.reasons.add(reasons[backend]);
    }
  }
  return [...rows.values()];
}

function shortType(type) {
  return type.replace(/^TENSOR_/, "").toLowerCase().replace("_asymm_signed", " signed").replace("_asymm", "").replaceAll("_", " ");
}

function text(row, backend) {
  const cell = row.byBackend[backend];
  if (!cell) return row.isDriver ? "driver" : "";
  return Object.keys(MARKS).map((answer) => cell[answer].map((type) => `${answer} ${type}`).join(" ")).join(" ");
}

function answers(row, backend) {
  const cell = row.byBackend[backend];
  if (!cell) return row.isDriver ? h("span.hint", {}, "run by the driver") : "–";
  const lines = Object.entries(MARKS).filter(([answer]) => cell[answer].length).map(([answer, [kind, mark, label]]) => h(
    `span.answer.${kind}`,
    {},
    h("span", { "aria-hidden": "true" }, mark),
    h("span", {}, answer === "no" ? `not ${cell.no.join(", ")}` : label + cell[answer].join(", ")),
  ));
  return h("div", {}, lines, [...cell.reasons].map((reason) => h("span.why", {}, reason)));
}

export const device = { id: "device", title: "Device", resources: ["devices"], once: ["abilities"], create: () => new Device() };
