// Worker processes.

import { actionButton } from "../actions.js";
import { fill, h, pill } from "../dom.js";
import { age, bytes, compact, count, exactTime } from "../format.js";
import { Table } from "../table.js";

class Workers {
  constructor() {
    this.now = 0;
    this.actions = h("div.page-actions");
    this.table = new Table(
      "Workers",
      [
        { title: "Worker", value: (worker) => worker.slot, code: true },
        { title: "State", value: (worker) => worker.state, cell: (worker) => pill(worker.state) },
        { title: "Process", value: (worker) => worker.pid, cell: (worker) => (worker.pid ? `pid ${worker.pid}` : "–") },
        { title: "Sessions", value: (worker) => worker.sessions, cell: (worker) => count(worker.sessions), number: true },
        { title: "Running", value: (worker) => worker.load.running, cell: (worker) => count(worker.load.running), number: true },
        { title: "Queued", value: (worker) => worker.load.queued, cell: (worker) => count(worker.load.queued), number: true },
        { title: "Executions", value: (worker) => worker.load.executions, cell: (worker) => compact(worker.load.executions), number: true },
        { title: "Memory", value: (worker) => worker.memory_bytes, cell: (worker) => bytes(worker.memory_bytes), number: true },
        { title: "Of clients", value: (worker) => worker.client_bytes, cell: (worker) => bytes(worker.client_bytes), number: true },
        { title: "Threads", value: (worker) => worker.threads, cell: (worker) => count(worker.threads), number: true },
        { title: "Restarts", value: (worker) => worker.restarts, cell: (worker) => (worker.restarts ? h("span", { title: worker.last_end }, count(worker.restarts)) : "0"), number: true },
        { title: "Last end", value: (worker) => worker.last_end || "–" },
        { title: "Age", value: (worker) => this.now - worker.started_at, cell: (worker) => h("span", { title: exactTime(worker.started_at) }, age(this.now - worker.started_at)), number: true },
        { title: "Actions", value: () => "", plain: true, cell: (worker) => [drain(worker)] },
      ],
      (worker) => `${worker.slot}/${worker.generation}`,
      { sort: 0, empty: ["No workers", "They are being started."] },
    );
    this.element = h("div", {}, this.actions, this.table.element);
  }

  update({ service, workers }) {
    this.now = service.at;
    const isDraining = service.state === "draining";
    fill(this.actions, [
      actionButton("Reload", "The service reads its settings and plug-ins again, and replaces its workers one by one. No call fails.", "reload"),
      isDraining
        ? actionButton("Resume all", "All workers take new sessions again.", "resume")
        : actionButton("Drain all", "No worker takes new sessions. Calls that run may finish.", "drain"),
    ]);
    this.table.update(workers);
  }
}

function drain(worker) {
  if (worker.state === "serving") return actionButton("Drain", `Worker ${worker.slot} takes no more sessions, and its clients go to others. Calls that run may finish.`, "drain", { worker: worker.slot });
  if (worker.state.startsWith("drain")) return actionButton("Resume", `Worker ${worker.slot} takes new sessions again.`, "resume", { worker: worker.slot });
  return null;
}

export const workers = { id: "workers", title: "Workers", resources: ["workers"], create: () => new Workers() };
