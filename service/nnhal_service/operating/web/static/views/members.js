// Members of the fleet, as this service knows them.

import { h, pill } from "../dom.js";
import { bytes, count } from "../format.js";
import { Table } from "../table.js";

class Members {
  constructor() {
    const state = (member) => (member.draining ? "draining" : "serving");
    this.table = new Table(
      "Members",
      [
        { title: "Member", value: (member) => member.id },
        { title: "Address", value: (member) => member.address },
        { title: "State", value: state, cell: (member) => pill(state(member)) },
        { title: "Sessions", value: (member) => member.sessions, cell: (member) => count(member.sessions), number: true },
        { title: "Work", value: (member) => member.executions, cell: (member) => count(member.executions), number: true },
        { title: "Free memory", value: (member) => member.free_bytes, cell: (member) => bytes(member.free_bytes), number: true },
        { title: "Models", value: (member) => member.models, cell: (member) => count(member.models), number: true },
        { title: "Backends", value: (member) => [...member.backends, ...member.accelerators].join(", ") },
        { title: "Version", value: (member) => member.version },
      ],
      (member) => member.id,
      { sort: 0, empty: ["No fleet", "This service belongs to no fleet, or has not heard of its members yet."] },
    );
    this.element = h("div", {}, this.table.element);
  }

  update({ members }) {
    this.table.update(members);
  }
}

export const members = { id: "members", title: "Members", resources: ["members"], create: () => new Members() };
