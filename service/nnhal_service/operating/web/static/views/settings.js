// Effective settings.

import { actionButton } from "../actions.js";
import { code, fill, h } from "../dom.js";
import { Table } from "../table.js";

const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"];

class Settings {
  constructor() {
    this.actions = h("div.page-actions");
    this.table = new Table(
      "Settings",
      [
        { title: "Setting", value: (setting) => setting.name, code: true },
        { title: "Value", value: (setting) => setting.value, cell: (setting) => (setting.value ? h("code.wrap", {}, setting.value) : "–") },
        { title: "Origin", value: (setting) => setting.origin },
      ],
      (setting) => setting.name,
      { sort: 0 },
    );
    this.element = h("div", {}, this.actions, this.table.element);
  }

  update({ service, settings: list }) {
    const buttons = LEVELS.filter((level) => level !== service.log_level).map((level) => actionButton(`Log ${level}`, `All processes log from ${level} on, until the next start or reload.`, "set-log-level", { level }));
    fill(this.actions, h("span.hint", {}, "Log level ", code(service.log_level)), buttons);
    this.table.update(list);
  }
}

export const settings = { id: "settings", title: "Settings", resources: ["settings"], create: () => new Settings() };
