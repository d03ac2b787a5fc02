// Models that have crashed or hung a worker.

import { actionButton } from "../actions.js";
import { code, fill, h, pill } from "../dom.js";
import { age, count, digest, exactTime } from "../format.js";
import { Table } from "../table.js";

class Quarantine {
  constructor() {
    this.now = 0;
    this.actions = h("div.page-actions");
    const state = (model) => (model.refused ? "refused" : "excluded");
    this.table = new Table(
      "Models in quarantine",
      [
        { title: "Model", value: (model) => model.digest, cell: (model) => code(digest(model.digest), model.digest) },
        { title: "State", value: state, cell: (model) => pill(state(model)) },
        { title: "Crashes", value: (model) => model.crashes, cell: (model) => count(model.crashes), number: true },
        { title: "Last", value: (model) => this.now - model.last_at, cell: (model) => h("span", { title: exactTime(model.last_at) }, `${age(this.now - model.last_at)} ago`), number: true },
        { title: "How", value: (model) => model.how },
        { title: "In the code of", value: (model) => model.backends.join(", ") || "unknown" },
        { title: "Does not run on", value: (model) => (model.refused ? "any backend" : model.excluded.join(", ") || "–") },
        { title: "Actions", value: () => "", plain: true, cell: (model) => [actionButton("Allow", "The model may be prepared again on all backends. If it crashes a worker again, it returns here.", "clear-quarantine", { digests: [model.digest] })] },
      ],
      (model) => model.digest,
      { sort: 3, empty: ["No model is in quarantine", "Models that crash a worker are kept from its backend for a week."] },
    );
    this.element = h("div", {}, this.actions, this.table.element);
  }

  update({ service, quarantine: models }) {
    this.now = service.at;
    fill(this.actions, models.length > 1 && actionButton("Allow all", "All models may be prepared again on all backends.", "clear-quarantine"));
    this.table.update(models);
  }
}

export const quarantine = { id: "quarantine", title: "Quarantine", resources: ["quarantine"], create: () => new Quarantine() };
