// Elements. Whatever comes from the gateway becomes text and never markup: names of keys and paths are clients' words.

/** The element with this id. */
export const at = (id) => document.getElementById(id);

/** A new element. Properties that are no property of elements are set as attributes. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map(asNode));
  return element;
}

const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

/** Shows a text if it is another one than before, so that a selection or a screen reader is not disturbed. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A sentence where there is nothing else to show; `code` is how to change that. */
export function empty(text, code) {
  return make("p", { class: "empty" }, text, code ? make("code", {}, code) : null);
}

/**
 * A table that is updated in place: cells whose text stays are not touched, and neither is the focus in them.
 * A column has `title`, `of(row)` as text or as what can be pressed, `number` if it is aligned as one, and `short` if
 * it stays on one line.
 */
export class Table {
  constructor(panel, caption, columns) {
    this.panel = panel;
    this.columns = columns;
    const head = columns.map((column) => make("th", { scope: "col", class: column.number && "number" }, column.title));
    this.body = make("tbody");
    this.table = make("table", {}, make("caption", { class: "note" }, caption), make("thead", {}, make("tr", {}, ...head)), this.body);
    panel.setAttribute("role", "region");
    panel.setAttribute("aria-label", caption);
    panel.tabIndex = 0;
  }

  /** Shows these rows, or what `none` makes if there are none. */
  show(rows, none) {
    if (rows.length === 0) {
      const nothing = none();
      if (this.panel.firstChild?.textContent !== nothing.textContent) this.panel.replaceChildren(nothing);
      return;
    }
    if (this.panel.firstChild !== this.table) this.panel.replaceChildren(this.table);
    while (this.body.rows.length > rows.length) this.body.lastChild.remove();
    while (this.body.rows.length < rows.length) this.body.append(this.emptyRow());
    rows.forEach((row, index) => this.fill(this.body.rows[index], row));
  }

  emptyRow() {
    const cell = (column, index) => (index === 0 ? make("th", { scope: "row" }) : make("td", { class: shape(column) }));
    return make("tr", {}, ...this.columns.map(cell));
  }

  fill(line, row) {
    line.className = row.kind ?? "";
    this.columns.forEach((column, index) => {
      const cell = line.cells[index];
      const value = column.of(row) ?? "";
      const tone = column.tone?.(row) ?? "";
      const wanted = `${index === 0 ? "" : shape(column)} ${tone}`.trim();
      if (cell.className !== wanted) cell.className = wanted;
      // On a narrow screen a cell has a line of its own, with its title before it.
      if (cell.dataset.title !== column.title) cell.dataset.title = column.title;
      if (typeof value === "object" && value.press) this.fillButton(cell, value);
      else if (cell.firstElementChild || cell.textContent !== String(value)) cell.textContent = String(value);
    });
  }

  /** A cell that can be pressed: the button stays, so that it keeps the focus. */
  fillButton(cell, { text, press, label }) {
    let button = cell.firstElementChild;
    if (!button) {
      button = make("button", { type: "button", class: "plain", onclick: () => button.press() });
      cell.replaceChildren(button);
    }
    button.press = press;
    say(button, text);
    if (label && button.getAttribute("aria-label") !== label) button.setAttribute("aria-label", label);
  }
}

const shape = (column) => (column.number ? "number" : column.short ? "short" : "text");

/** Pairs of a term and what is said of it, updated in place. */
export function facts(list, pairs, wrap = false) {
  const key = pairs.map(([term]) => term).join("\n");
  if (list.dataset.terms !== key) {
    list.dataset.terms = key;
    const both = ([term]) => [make("dt", {}, term), make("dd")];
    list.replaceChildren(...pairs.flatMap((pair) => (wrap ? [make("div", {}, ...both(pair))] : both(pair))));
  }
  const shown = list.querySelectorAll("dd");
  pairs.forEach(([, text, tone], index) => {
    say(shown[index], String(text));
    if (shown[index].className !== (tone ?? "")) shown[index].className = tone ?? "";
  });
}
