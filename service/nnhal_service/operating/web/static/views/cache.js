// The cache of saved models.

import { actionButton } from "../actions.js";
import { code, empty, fill, h, name, section } from "../dom.js";
import { age, bytes, count, digest, exactTime, share } from "../format.js";
import { Table } from "../table.js";

class Cache {
  constructor() {
    this.now = 0;
    this.summary = h("div");
    this.reasons = new Table(
      "Reasons of misses",
      [
        { title: "Reason", value: (row) => row.reason },
        { title: "Misses", value: (row) => row.misses, cell: (row) => count(row.misses), number: true },
      ],
      (row) => row.reason,
      { sort: 1, descending: true, empty: ["No misses", ""] },
    );
    const when = (at) => h("span", { title: exactTime(at) }, `${age(this.now - at)} ago`);
    this.entries = new Table(
      "Entries",
      [
        { title: "Token", value: (entry) => `${entry.model_name} ${entry.token}`, cell: (entry) => [code(digest(entry.token), entry.token), name(entry.model_name)] },
        { title: "Identity", value: (entry) => entry.identity || "damaged" },
        { title: "Size", value: (entry) => entry.size, cell: (entry) => bytes(entry.size), number: true },
        { title: "Hits", value: (entry) => entry.hits, cell: (entry) => count(entry.hits), number: true },
        { title: "Saved", value: (entry) => this.now - entry.saved_at, cell: (entry) => when(entry.saved_at), number: true },
        { title: "Last used", value: (entry) => this.now - entry.last_used_at, cell: (entry) => when(entry.last_used_at), number: true },
        { title: "Backends", value: (entry) => entry.backends || "–" },
        { title: "Actions", value: () => "", plain: true, cell: (entry) => [actionButton("Remove", "The saved model is removed. Its next preparation compiles it again.", "clear-cache", { identity: entry.identity, tokens: [entry.token] })] },
      ],
      (entry) => `${entry.identity}/${entry.token}`,
      { sort: 5, empty: ["The cache is empty", "Models that clients prepare with a token are saved here."] },
    );
    this.element = h("div", {}, this.summary, section("Misses", this.reasons.element), section("Entries", this.entries.element));
  }

  update({ service, cache: state }) {
    this.now = service.at;
    if (!state.max_bytes) {
      fill(this.element, empty("The cache is off", "The setting cache_bytes turns it on."));
      return;
    }
    const used = h("progress", { value: state.size, max: state.max_bytes, "aria-label": "Used part of the cache" });
    fill(
      this.summary,
      h("div.card.usage", {}, h("p", {}, h("b", {}, bytes(state.size)), ` of ${bytes(state.max_bytes)} in ${count(state.entries.length)} ${state.entries.length === 1 ? "entry" : "entries"}`), used, h("p.hint", {}, code(state.directory))),
      h("dl.tiles", {}, [
        ["Hits", count(state.hits), share(state.hits, state.hits + state.misses)],
        ["Misses", count(state.misses), "see below"],
        ["Saves", count(state.saves), "models written"],
        ["Evictions", count(state.evictions), "to make room"],
        ["Set aside", count(state.set_aside), "damaged entries"],
      ].map(([name, value, note]) => h("div.tile.card", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), h("span.hint", {}, note))))),
      h("div.page-actions", {}, actionButton("Clear the cache", "All saved models of all identities are removed. Their next preparations compile them again.", "clear-cache")),
    );
    this.reasons.update(Object.entries(state.miss_reasons).map(([reason, misses]) => ({ reason, misses })));
    this.entries.update(state.entries);
  }
}

export const cache = { id: "cache", title: "Cache", resources: ["cache"], create: () => new Cache() };
