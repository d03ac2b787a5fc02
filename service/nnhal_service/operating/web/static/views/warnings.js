// The last warnings and errors of the log.

import { h, pill } from "../dom.js";
import { age, exactTime } from "../format.js";
import { Table } from "../table.js";

class Warnings {
  constructor() {
    this.now = 0;
    this.table = new Table(
      "Warnings",
      [
        { title: "Age", value: (warning) => this.now - warning.at, cell: (warning) => h("span", { title: exactTime(warning.at) }, `${age(this.now - warning.at)} ago`), number: true },
        { title: "Level", value: (warning) => warning.level, cell: (warning) => pill(warning.level) },
        { title: "Event", value: (warning) => warning.event, code: true },
        { title: "From", value: (warning) => (warning.worker < 0 ? "supervisor" : `worker ${warning.worker}`) },
        { title: "Details", value: (warning) => warning.text, cell: (warning) => h("code.wrap", {}, warning.text) },
      ],
      (warning) => warning.key,
      { sort: 0, empty: ["No warnings", "Lines of the log with level WARNING or ERROR appear here."] },
    );
    this.element = this.table.element;
  }

  update({ service, warnings: lines }) {
    this.now = service.at;
    const seen = new Map();
    this.table.update(lines.map((line) => {
      const text = `${line.at}/${line.worker}/${line.event}`;
      seen.set(text, (seen.get(text) ?? 0) + 1);
      return { ...line, key: `${text}/${seen.get(text)}` };
    }));
  }
}

export const warnings = { id: "warnings", title: "Warnings", resources: ["warnings"], create: () => new Warnings() };
