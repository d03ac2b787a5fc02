// Prepared models, and where their operations run.

import { code, fill, h, name, pill } from "../dom.js";
import { age, bytes, count, digest, exactTime, seconds, share } from "../format.js";
import { LONG, MINOR, Table } from "../table.js";

class Models {
  constructor() {
    this.now = 0;
    const dash = (value, format) => (value ? format(value) : "–");
    this.table = new Table(
      "Prepared models",
      [
        { title: "Model", value: (model) => model.name, code: true },
        { title: "Digest", value: (model) => `${model.model_name} ${model.digest}`, cell: (model) => [model.digest ? code(digest(model.digest), model.digest) : "–", name(model.model_name)] },
        { title: "Runs on", value: (model) => model.backends.join(", ") },
        { title: "Identity", value: (model) => model.identity, classes: LONG },
        { title: "Session", value: (model) => model.session, code: true, classes: MINOR },
        { title: "Priority", value: (model) => model.priority, classes: MINOR },
        { title: "Executions", value: (model) => model.uses, cell: (model) => count(model.uses), number: true },
        { title: "Best", value: (model) => model.best_s, cell: (model) => dash(model.best_s, seconds), number: true, classes: MINOR },
        { title: "Longest", value: (model) => model.longest_s, cell: (model) => dash(model.longest_s, seconds), number: true, classes: MINOR },
        { title: "Memory", value: (model) => model.memory_bytes, cell: (model) => dash(model.memory_bytes, bytes), number: true },
        { title: "Drift", value: (model) => model.shadow_different / (model.shadow_compared || 1), cell: (model) => drift(model), number: true, classes: MINOR },
        { title: "Source", value: (model) => (model.cached ? "cached" : "compiled"), cell: (model) => pill(model.cached ? "cached" : "compiled"), classes: MINOR },
        { title: "Age", value: (model) => this.now - model.prepared_at, cell: (model) => h("span", { title: exactTime(model.prepared_at) }, age(this.now - model.prepared_at)), number: true },
      ],
      (model) => model.id,
      {
        sort: 6,
        descending: true,
        details: placement,
        empty: ["No prepared models", "Models appear here when clients prepare them."],
      },
    );
    this.element = h("div", {}, h("p.hint", {}, "Open a row to see which backend runs which operations, and why."), this.table.element);
  }

  update({ service, models }) {
    this.now = service.at;
    this.table.update(models);
  }
}

/** Return the part of the executions for which the shadow has computed something else. */
function drift({ shadow_compared: compared, shadow_different: different }) {
  return h("span", { title: `${count(different)} of ${count(compared)} executions that the shadow has repeated` }, share(different, compared));
}

/** Return where the operations of a model run. */
function placement(model) {
  const order = [...new Set(model.partitions.map((partition) => partition.backend))];
  return h("div.placement", {}, h("ol.partitions", {}, model.partitions.map((partition) => h(
    `li.color-${order.indexOf(partition.backend) % 4}`,
    {},
    h("p.title", {}, partition.backend, h("span.hint", {}, ` ${partition.operations.length} ${partition.operations.length === 1 ? "operation" : "operations"}${partition.subgraph ? `, subgraph ${partition.subgraph}` : ""}`)),
    h("p.operations", {}, runs(partition.operations).map(([name, times]) => h("code", {}, times > 1 ? `${name} ×${times}` : name))),
    partition.reasons.map((reason) => h("p.reason", {}, reason)),
  ))));
}

/** Return operations in order, with the number of equal ones in a row. */
function runs(operations) {
  const result = [];
  for (const name of operations) {
    if (result.at(-1)?.[0] === name) result.at(-1)[1] += 1;
    else result.push([name, 1]);
  }
  return result;
}

export const models = { id: "models", title: "Models", resources: ["models"], create: () => new Models() };
