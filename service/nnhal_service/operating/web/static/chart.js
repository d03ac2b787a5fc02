// Charts over time, drawn by uPlot. Colors come from the style sheet, so that they follow the theme.

import { h } from "./dom.js";
import { time } from "./format.js";

const SPAN_S = 900;
const HEIGHT = 190;
/** Width of a character on an axis, and the space beside its labels. */
const CHARACTER = 6.5;
const GAP = 10;
/** Distances between round numbers on an axis. */
export const STEPS = {
  binary: Array.from({ length: 50 }, (_, exponent) => 2 ** exponent),
  whole: Array.from({ length: 12 }, (_, exponent) => [1, 2, 5].map((digit) => digit * 10 ** exponent)).flat(),
};

/**
 * A series.
 * @typedef {object} Series
 * @property {string} name
 * @property {string} key name of the series in the history
 */

export class Chart {
  /**
   * @param {string} title
   * @param {string} hint what the chart shows, in words
   * @param {Series[]} series
   * @param {(value: number) => string} format
   * @param {?number[]} steps distances between the numbers on the axis; null for decimal fractions
   */
  constructor(title, hint, series, format, steps = null) {
    this.steps = steps;
    this.series = series;
    this.format = format;
    this.history = null;
    this.values = series.map(() => h("b", {}, "–"));
    this.swatches = series.map((_, index) => h(`i.swatch.color-${index}`, { "aria-hidden": "true" }));
    const legend = series.map(({ name }, index) => h("li", {}, this.swatches[index], `${name} `, this.values[index]));
    this.plotted = h("div.plot", { "aria-hidden": "true" });
    this.at = h("span.hint");
    this.element = h(
      "figure.chart.card",
      {},
      h("figcaption", {}, h("h2", {}, title), h("span.hint", {}, hint), h("span.grow"), this.at),
      h("ul.legend", {}, legend),
      this.plotted,
    );
    this.onTheme = () => this.plot?.redraw();
    window.addEventListener("nnhal-theme", this.onTheme);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.plotted);
  }

  /** Show a history: lists by name, with the times in "at". */
  update(history) {
    this.history = history;
    const data = [history.at, ...this.series.map(({ key }) => history[key])];
    if (this.plot) this.plot.setData(data);
    else if (this.plotted.clientWidth && history.at.length) this.draw(data);
    if (!this.plot || this.plot.cursor.idx === null || this.plot.cursor.left < 0) this.show(history.at.length - 1, false);
  }

  /** Show the values at a point in the legend. */
  show(index, isCursor) {
    this.series.forEach(({ key }, number) => {
      const value = this.history?.[key][index];
      this.values[number].textContent = value === null || value === undefined ? "–" : this.format(value);
    });
    this.at.textContent = isCursor ? `at ${time(this.history.at[index]).slice(11)}` : "";
  }

  draw(data) {
    const color = (index) => () => getComputedStyle(this.swatches[index]).backgroundColor;
    const text = () => getComputedStyle(this.at).color;
    const grid = { stroke: () => getComputedStyle(this.element).borderTopColor, width: 1 };
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: text, grid, ticks: { show: false }, font };
    const options = {
      width: this.plotted.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
      padding: [10, 30, 0, 0],
      scales: {
        x: { range: (plot, low, high) => [Math.max(high - SPAN_S, Math.min(low, high - 60)), high] },
        y: { range: (plot, low, high) => [0, high > 0 ? high * 1.1 : 1] },
      },
      axes: [
        { ...axis, size: 32, gap: GAP, space: 70, values: (plot, ticks) => ticks.map((tick) => time(tick).slice(11, 16 + (plot.scales.x.max - plot.scales.x.min < 300 ? 3 : 0))) },
        { ...axis, ...(this.steps ? { incrs: this.steps } : {}), size: (plot, labels) => GAP + CHARACTER * Math.max(3, ...(labels ?? []).map((label) => label.length)), gap: GAP / 2, space: 34, values: (plot, ticks) => ticks.map((tick) => this.format(tick)) },
      ],
      series: [
        {},
        ...this.series.map((_, index) => ({ stroke: color(index), width: 1.75, points: { show: false }, spanGaps: false })),
      ],
      hooks: {
        setCursor: [
          (plot) => {
            const isCursor = plot.cursor.idx !== null && plot.cursor.left >= 0;
            this.show(isCursor ? plot.cursor.idx : this.history.at.length - 1, isCursor);
          },
        ],
      },
    };
    this.plot = new window.uPlot(options, data, this.plotted);
  }

  resize() {
    if (this.plot) this.plot.setSize({ width: this.plotted.clientWidth, height: HEIGHT });
    else if (this.history) this.update(this.history);
  }

  destroy() {
    window.removeEventListener("nnhal-theme", this.onTheme);
    this.observer.disconnect();
    this.plot?.destroy();
  }
}
