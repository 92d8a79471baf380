// The two charts: requests by class of their status, and decisions by policy as stacked areas. A screen reader is told the
// sums; the tables have every figure.

import uPlot from "./uplot.js";
import { at, make, say } from "./dom.js";
import { clock, rate } from "./numbers.js";

const HEIGHT = 220;
const NAMED = 4;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A chart of areas upon each other, the first at the bottom, with its legend. */
class Stack {
  constructor(place, legend) {
    this.place = at(place);
    this.legend = at(legend);
    this.names = null;
    new ResizeObserver(() => this.fit()).observe(this.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.forget());
  }

  /** Series have a `name`, a `tone` (the name of a colour) and a `column`. */
  show(times, series) {
    const names = series.map((one) => `${one.tone} ${one.name}`).join("\n");
    if (names !== this.names) this.build(series);
    this.names = names;
    this.series = series;
    const sums = [];
    // Upon each other: each has all beneath it.
    series.forEach((one, index) => {
      const beneath = index === 0 ? null : sums[index - 1];
      sums.push(one.column.map((value, moment) => (value === null ? null : value + (beneath?.[moment] ?? 0))));
    });
    this.chart.setData([times, ...sums]);
    this.tell(null);
  }

  forget() {
    this.names = null;
  }

  build(series) {
    this.chart?.destroy();
    const line = (one) => ({
      label: one.name,
      stroke: colour(one.tone),
      fill: `${colour(one.tone)}b0`,
      width: 1,
      points: { show: false },
    });
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    this.chart = new uPlot(
      {
        width: this.place.clientWidth || 300,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
        scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
        axes: [{ ...axis, size: 30, space: 70, values: (_, marks) => marks.map(clock) }, { ...axis, size: 46, values: (_, marks) => marks.map((mark) => rate(mark)) }],
        series: [{}, ...series.map(line)],
        // An area reaches down to the one beneath it.
        bands: series.slice(1).map((_, index) => ({ series: [index + 2, index + 1] })),
        hooks: { setCursor: [(chart) => this.tell(chart.cursor.idx)] },
      },
      [[], ...series.map(() => [])],
      this.place,
    );
    const swatch = (one) => {
      const square = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      square.setAttribute("viewBox", "0 0 1 1");
      square.setAttribute("aria-hidden", "true");
      const filled = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      filled.setAttribute("width", "1");
      filled.setAttribute("height", "1");
      filled.setAttribute("fill", colour(one.tone));
      square.append(filled);
      return square;
    };
    this.legend.replaceChildren(...series.map((one) => make("li", {}, swatch(one), one.name, make("b"))));
  }

  /** The figures of a moment, or of the last one. */
  tell(moment) {
    const figures = this.legend.querySelectorAll("b");
    const value = (one) => one.column[moment ?? one.column.length - 1];
    this.series?.forEach((one, index) => say(figures[index], rate(value(one) ?? 0)));
    if (moment !== null && moment !== undefined) return;
    const said = this.series?.map((one) => `${one.name} ${rate(value(one) ?? 0)}`).join(", ");
    if (said) this.place.setAttribute("aria-label", `Per second: ${said}`);
  }

  fit() {
    if (this.chart && this.place.clientWidth) this.chart.setSize({ width: this.place.clientWidth, height: HEIGHT });
  }
}

export class Charts {
  constructor(history) {
    this.history = history;
    this.requests = new Stack("requests-chart", "requests-legend");
    this.decisions = new Stack("decisions-chart", "decisions-legend");
  }

  show() {
    const { history } = this;
    const times = history.times();
    const byClass = (name, tone, ...classes) => ({
      name,
      tone,
      column: history.column((moment) => classes.reduce((sum, one) => sum + (moment.requests[one] ?? 0), 0)),
    });
    this.requests.show(times, [
      byClass("5xx", "--refused-1", "5xx"),
      byClass("4xx", "--refused-2", "4xx"),
      byClass("3xx", "--admitted-5", "1xx", "3xx", "other"),
      byClass("2xx", "--admitted-1", "2xx"),
    ]);
    this.decisions.show(times, [...this.byPolicy("refused"), ...this.byPolicy("admitted")]);
  }

  byPolicy(kind) {
    const names = this.history.most(kind, NAMED);
    const of = (name) => this.history.column((moment) => moment.policies.get(name)?.[kind] ?? 0);
    const series = names.map((name, index) => ({ name: `${name} ${kind}`, tone: `--${kind}-${index + 1}`, column: of(name) }));
    const rest = this.history.rest(kind, names);
    if (names.length === 0 || rest.some((value) => value > 0)) {
      series.push({ name: names.length ? `others ${kind}` : kind, tone: `--${kind}-5`, column: rest });
    }
    return series;
  }
}
