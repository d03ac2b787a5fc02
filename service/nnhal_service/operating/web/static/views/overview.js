// Overview: load of the last minutes, and what needs attention.

import { Chart, STEPS } from "../chart.js";
import { code, empty, fill, h, pill, section } from "../dom.js";
import { age, bytes, compact, count, rate, seconds, share, time } from "../format.js";

const MANY_WARNINGS = 5;

class Overview {
  constructor() {
    this.tiles = h("dl.tiles");
    this.attention = h("ul.attention");
    this.facts = h("dl.facts");
    this.charts = [
      new Chart("Throughput", "executions each second", [
        { name: "executed", key: "executions_per_s" },
        { name: "failed", key: "rejected_per_s" },
      ], rate),
      new Chart("Latency", "of executions, over 10 s", [
        { name: "p50", key: "duration_p50_s" },
        { name: "p95", key: "duration_p95_s" },
        { name: "p99", key: "duration_p99_s" },
      ], seconds),
      new Chart("Work", "at the moment", [
        { name: "running", key: "running" },
        { name: "queued", key: "queued" },
        { name: "preparing", key: "preparing" },
      ], compact, STEPS.whole),
      new Chart("Waiting for a slot", "share of executions, over 10 s", [
        { name: "over 1 ms", key: "waits_over_1ms" },
        { name: "over 10 ms", key: "waits_over_10ms" },
        { name: "over 100 ms", key: "waits_over_100ms" },
      ], (value) => share(value, 1)),
      new Chart("Memory", "of all workers", [{ name: "resident", key: "memory_bytes" }], bytes, STEPS.binary),
      new Chart("Sessions", "open at the moment", [{ name: "sessions", key: "sessions" }], compact, STEPS.whole),
    ];
    this.element = h(
      "div",
      {},
      this.tiles,
      h("div.charts", {}, this.charts.map((chart) => chart.element)),
      section("Needs attention", this.attention),
      section("Service", this.facts),
    );
  }

  update({ service, history, devices, workers, quarantine, warnings }) {
    const last = (key) => history[key].findLast((value) => value !== null);
    const latency = last("duration_p50_s");
    const { load, cache } = service;
    fill(this.tiles, [
      tile("Throughput", rate(last("executions_per_s") ?? 0), `${compact(load.executions)} since the start`),
      tile("Latency", latency === undefined ? "–" : seconds(latency), latency === undefined ? "no executions yet" : `p99 ${seconds(last("duration_p99_s"))}`),
      tile("Work", count(load.running), `${count(load.queued)} queued, ${count(load.preparing)} preparing`),
      tile("Sessions", count(service.counts.sessions), `${count(service.counts.models)} prepared models`),
      tile("Memory", bytes(service.memory_bytes), `${count(service.counts.workers)} ${service.counts.workers === 1 ? "worker" : "workers"}`),
      tile("Cache hits", share(cache.hits, cache.hits + cache.misses), cache.max_bytes ? `${bytes(cache.size)} of ${bytes(cache.max_bytes)}` : "the cache is off"),
    ]);
    for (const chart of this.charts) chart.update(history);
    const problems = attention(service, devices, workers, quarantine, warnings);
    fill(this.attention, problems.length ? problems : h("li.fine", {}, empty("Nothing needs attention", "")));
    fill(this.facts, [
      fact("Addresses", service.addresses.map((address) => h("span.line", {}, code(address)))),
      fact("Running for", `${age(service.at - service.started_at)}, since ${time(service.started_at)}`),
      fact("Version", service.version),
      fact("Process", `pid ${service.pid}`),
      fact("Devices", devices.map((device) => device.name).join(", ")),
      fact("Log level", service.log_level),
    ]);
  }

  destroy() {
    for (const chart of this.charts) chart.destroy();
  }
}

function tile(name, value, note) {
  return h("div.tile.card", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), h("span.hint", {}, note)));
}

function fact(name, ...value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
}

function attention(service, devices, workers, quarantine, warnings) {
  const item = (state, view, text) => h("li", {}, pill(state), h("span", {}, text), h("a", { href: `#/${view}`, "aria-label": `Show ${view}` }, "Show"));
  const items = [];
  for (const worker of workers) {
    if (worker.state !== "serving") items.push(item(worker.state, "workers", `Worker ${worker.slot} is ${worker.state}.`));
    else if (worker.restarts) items.push(item("restarted", "workers", `Worker ${worker.slot} was started again ${worker.restarts === 1 ? "once" : `${worker.restarts} times`}: ${worker.last_end}.`));
  }
  for (const device of devices) {
    for (const backend of device.backends) {
      if (backend.state === "failed") items.push(item("failed", "backends", `Backend ${backend.id || backend.origin}: ${backend.reason}.`));
    }
  }
  for (const model of quarantine) {
    const text = model.refused ? "is refused" : `does not run on ${model.excluded.join(", ")}`;
    items.push(item(model.refused ? "refused" : "excluded", "quarantine", `Model ${model.digest.slice(0, 12)} ${text}: ${model.how}.`));
  }
  for (const warning of warnings.slice(-MANY_WARNINGS).reverse()) {
    items.push(item(warning.level, "warnings", `${warning.event} ${age(service.at - warning.at)} ago`));
  }
  return items;
}

export const overview = {
  id: "overview",
  title: "Overview",
  resources: ["history", "devices", "workers", "quarantine", "warnings"],
  create: () => new Overview(),
};
