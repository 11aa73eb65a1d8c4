// An answer as it is on the screen of a shell, and its pictures.

import { h, s } from "./dom.js";

const COLORS = 8;

function cell(column, one, first, color) {
  if (column.drawn) return h("td", { class: "drawn" }, typeof one === "string" ? one : bar(one, color));
  const names = [column.right ? "right" : "", column.remark ? "remark" : ""].filter(Boolean).join(" ");
  return first ? h("th", { scope: "row", class: names }, one) : h("td", { class: names }, one);
}

function bar({ start, end, free }, color) {
  const width = Math.max(100 * (end - start), end > start ? 0.5 : 0);
  return s("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: free ? "free" : color, x: 100 * start, width, height: 10 }));
}

/** Return a table of a screen; named: what has a color in the picture above it; extra(row): cells at its end. */
export function table(found, named = [], extra = null) {
  if (!found) return "";
  const used = found.columns.map((column, i) => column.name || found.rows.some((row) => row[i] !== ""));
  const drawn = found.columns.map((_, i) => found.rows.some((row) => typeof row[i] !== "string"));
  const columns = found.columns.map((column, i) => ({ ...column, drawn: drawn[i] })).filter((_, i) => used[i]);
  const head = columns.some((column) => column.name)
    ? h("thead", {}, h("tr", {}, columns.map((c) => (c.name ? h("th", { scope: "col", class: c.right ? "right" : "" }, c.name) : h("td"))),
        extra ? [h("td"), h("td")] : ""))
    : "";
  const rows = found.rows.map((row) => {
    const cells = row.filter((_, i) => used[i]);
    const color = named.includes(cells[0]) ? `s${named.indexOf(cells[0]) % COLORS}` : "";
    return h("tr", {}, cells.map((one, i) => cell(columns[i], one, i === 0, color)), extra ? extra(row).map((one) => h("td", { class: one instanceof SVGElement ? "drawn" : "" }, one)) : "");
  });
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, h("table", {}, head, h("tbody", {}, rows)));
}

/** Return the time that a remedy costs, with its interval, next to the others': a share of a step, up to `most`. */
export function costBar({ extra, low, high }, most) {
  const at = (value) => (100 * Math.min(Math.max(value, 0), most)) / most;
  return s("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "free", x: at(low), width: Math.max(at(high) - at(low), 0.5), height: 10 }),
    s("rect", { class: "middle", x: Math.min(at(extra), 99), width: 1, height: 10 }));
}

/** Return lines 1 and 2: the question, and the answer with what goes with it. */
export function headline(screen) {
  const [first, ...rest] = screen.headline;
  const judged = first && first.text === first.text.toUpperCase() && rest.length;
  return [
    h("p", { class: "asked" }, screen.question),
    first ? h("p", { class: `headline ${judged ? "judged" : ""}` }, h("b", { class: first.tone }, first.text), " ",
        rest.map((part, i) => [judged && i === 0 ? h("b", { class: part.tone }, part.text) : h("span", {}, part.text), " "])) : "",
  ];
}

/** Return a picture that napkin drew: parsed, so that it is elements of this page and nothing runs. */
export function figure(text) {
  return document.adoptNode(new DOMParser().parseFromString(text, "text/html").querySelector("figure"));
}
