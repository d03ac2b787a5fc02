// Tables that sort, filter, and keep their place while their data changes.

import { empty, fill, h } from "./dom.js";

const COLLATOR = new Intl.Collator("en", { numeric: true });
const MAX_ROWS = 500;

export const MINOR = ".minor";
export const LONG = ".long";

/**
 * A column.
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: object) => (string|number|boolean)} value what the column sorts and filters by
 * @property {(row: object) => (Node|string|Array)} [cell] what it shows; the value by default
 * @property {string} [classes] MINOR: a narrow table shows it with the details only; LONG: it shows its beginning
 * @property {boolean} [number] whether it is aligned to the right, and sorts from the largest first
 * @property {boolean} [plain] whether it cannot be sorted, for buttons
 * @property {boolean} [code] whether it is shown in the font of code
 */

export class Table {
  /**
   * @param {string} label caption of the table, for screen readers and the filter
   * @param {Column[]} columns
   * @param {(row: object) => string} key
   * @param {{sort?: number, descending?: boolean, empty?: [string, string], details?: (row: object) => Node}} options
   */
  constructor(label, columns, key, options = {}) {
    this.columns = columns;
    this.key = key;
    this.options = options;
    this.rows = [];
    this.elements = new Map();
    this.opened = new Set();
    this.sorted = options.sort ?? -1;
    this.descending = options.descending ?? false;
    this.query = "";
    this.input = h("input", {
      type: "search",
      placeholder: "Filter",
      "aria-label": `Filter ${label.toLowerCase()}`,
      oninput: () => {
        this.query = this.input.value.trim().toLowerCase();
        this.render();
      },
    });
    this.total = h("span.hint", { role: "status" });
    this.order = this.orders(label);
    this.headers = columns.map((column, index) => this.header(column, index));
    this.body = h("tbody", { role: "rowgroup" });
    this.none = h("div");
    const heads = h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, options.details && h("th", { role: "columnheader", scope: "col" }, h("span.hidden", {}, "Details")), this.headers));
    this.scroll = h(
      "div.scroll",
      { tabindex: "0", role: "region", "aria-label": label },
      h("table", { role: "table" }, h("caption.hidden", {}, label), heads, this.body),
    );
    this.tools = h("div.tools", {}, this.input, this.order, this.total);
    this.element = h("div.table", {}, this.tools, this.scroll, this.none);
  }

  header(column, index) {
    const type = `${column.number ? "th.number" : "th"}${column.classes ?? ""}`;
    if (column.plain) return h(type, { role: "columnheader", scope: "col" }, h("span.hidden", {}, column.title));
    const button = h("button", { type: "button", onclick: () => this.sort(index) }, h("span.arrow", { "aria-hidden": "true" }), column.title);
    return h(type, { role: "columnheader", scope: "col" }, button);
  }

  /** Return the list of orders for narrow screens, where rows are cards without a header. */
  orders(label) {
    const options = this.columns.map((column, index) => (column.plain ? null : h("option", { value: index }, `By ${column.title.toLowerCase()}`)));
    const order = h("select.order", { "aria-label": `Order of ${label.toLowerCase()}` }, this.sorted < 0 && h("option", { value: -1 }, "By default"), options);
    order.addEventListener("change", () => this.sort(Number(order.value)));
    order.value = String(this.sorted);
    return order;
  }

  sort(index) {
    if (this.sorted === index) this.descending = !this.descending;
    else {
      this.sorted = index;
      this.descending = Boolean(this.columns[index]?.number);
    }
    this.order.value = String(index);
    this.render();
  }

  /** Show other rows. */
  update(rows) {
    this.rows = rows;
    this.render();
  }

  filtered() {
    const words = this.query.split(/\s+/).filter(Boolean);
    if (!words.length) return [...this.rows];
    const columns = this.columns.filter((column) => !column.plain);
    const text = (row) => columns.map((column) => `${column.value(row)} ${shown(column, row)}`).join(" ").toLowerCase();
    return this.rows.filter((row) => {
      const all = text(row);
      return words.every((word) => all.includes(word));
    });
  }

  render() {
    const rows = this.filtered();
    if (this.sorted >= 0) {
      const { value } = this.columns[this.sorted];
      const sign = this.descending ? -1 : 1;
      rows.sort((a, b) => sign * compare(value(a), value(b)));
    }
    this.headers.forEach((header, index) => {
      const order = this.descending ? "descending" : "ascending";
      if (index === this.sorted) header.setAttribute("aria-sort", order);
      else header.removeAttribute("aria-sort");
    });
    const elements = new Map();
    const list = [];
    for (const row of rows.slice(0, MAX_ROWS)) {
      const key = this.key(row);
      const element = this.elements.get(key) ?? this.newRow(key);
      this.fillRow(element, row, key);
      elements.set(key, element);
      list.push(element.tr);
      if (element.details) list.push(element.details);
    }
    this.elements = elements;
    arrange(this.body, list);
    this.renderNote(rows.length);
  }

  renderNote(matching) {
    const all = this.rows.length;
    const first = matching > MAX_ROWS ? `the first ${MAX_ROWS} of ` : "";
    this.total.textContent = matching === all && !first ? `${all}` : `${first}${matching} of ${all}`;
    this.scroll.hidden = matching === 0;
    this.tools.hidden = all === 0;
    const [title, text] = all ? ["Nothing matches the filter", ""] : (this.options.empty ?? ["Nothing here", ""]);
    if (matching === 0) fill(this.none, empty(title, text));
    else this.none.replaceChildren();
  }

  newRow(key) {
    const cells = this.columns.map((column) => {
      const classes = [column.number && ".number", column.code && ".code", column.plain && ".actions", column.classes];
      return h(`td${classes.filter(Boolean).join("")}`, { role: "cell", dataset: column.plain ? {} : { label: column.title } });
    });
    const element = { cells, details: null, toggle: null };
    if (this.options.details) {
      element.toggle = h("button.toggle", { type: "button", "aria-expanded": "false", onclick: () => this.toggle(key) });
    }
    element.tr = h("tr", { role: "row" }, element.toggle && h("td.toggle-cell", { role: "cell" }, element.toggle), cells);
    return element;
  }

  fillRow(element, row, key) {
    this.columns.forEach((column, index) => {
      const cell = element.cells[index];
      if (column.cell) fill(cell, column.cell(row));
      else if (cell.textContent !== String(column.value(row))) cell.textContent = column.value(row);
    });
    if (!element.toggle) return;
    const isOpen = this.opened.has(key);
    element.toggle.setAttribute("aria-expanded", String(isOpen));
    element.toggle.setAttribute("aria-label", `Details of ${element.cells[0].textContent}`);
    if (!isOpen) element.details = null;
    else {
      element.details ??= h("tr.details", { role: "row" }, h("td", { role: "cell", colspan: this.columns.length + 1 }));
      fill(element.details.firstChild, this.minorFacts(row), this.options.details(row));
    }
  }

  /** Return the fields of the columns that a narrow table hides. */
  minorFacts(row) {
    const columns = this.columns.filter((column) => column.classes === MINOR);
    return h("dl.facts.minor-facts", {}, columns.map((column) => h("div", {}, h("dt", {}, column.title), h("dd", {}, column.cell ? column.cell(row) : column.value(row)))));
  }

  toggle(key) {
    if (!this.opened.delete(key)) this.opened.add(key);
    this.render();
  }
}

/** Return the text that a column shows. */
function shown(column, row) {
  if (!column.cell) return "";
  const cell = column.cell(row);
  return typeof cell === "string" ? cell : "";
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return COLLATOR.compare(String(a), String(b));
}

/** Make a list of elements the children of a parent, and move only those that are elsewhere. */
function arrange(parent, list) {
  const wanted = new Set(list);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  let next = parent.firstElementChild;
  for (const element of list) {
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
  }
}
