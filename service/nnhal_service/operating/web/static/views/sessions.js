// Sessions of all workers.

import { actionButton } from "../actions.js";
import { h, pill } from "../dom.js";
import { age, bytes, count, exactTime } from "../format.js";
import { Table } from "../table.js";

class Sessions {
  constructor() {
    this.now = 0;
    const state = (session) => (session.connected ? "connected" : "disconnected");
    this.table = new Table(
      "Sessions",
      [
        { title: "Session", value: (session) => session.name, code: true },
        { title: "Identity", value: (session) => session.identity },
        { title: "Client", value: (session) => session.client || "–" },
        { title: "Address", value: (session) => session.peer, code: true },
        { title: "Placement", value: (session) => session.placement || "–" },
        { title: "State", value: state, cell: (session) => pill(state(session)) },
        { title: "Worker", value: (session) => session.worker, number: true },
        { title: "Calls", value: (session) => session.calls, number: true },
        { title: "Models", value: (session) => session.models, cell: (session) => count(session.models), number: true },
        { title: "Objects", value: (session) => session.objects, cell: (session) => count(session.objects), number: true },
        { title: "Memory", value: (session) => session.memory_bytes, cell: (session) => bytes(session.memory_bytes), number: true },
        { title: "Age", value: (session) => this.now - session.opened_at, cell: (session) => h("span", { title: exactTime(session.opened_at) }, age(this.now - session.opened_at)), number: true },
        { title: "Actions", value: () => "", plain: true, cell: (session) => [actionButton("End", `Session ${session.name} of ${session.identity} ends at once. Its calls fail, and its models and memory are freed.`, "end-session", { session: session.id })] },
      ],
      (session) => session.id,
      { sort: 11, empty: ["No sessions", "No client is connected."] },
    );
    this.element = this.table.element;
  }

  update({ service, sessions }) {
    this.now = service.at;
    this.table.update(sessions);
  }
}

export const sessions = { id: "sessions", title: "Sessions", resources: ["sessions"], create: () => new Sessions() };
