// An answer as it is on the screen of a shell, and its pictures.

import { h, s } from "./dom.js";

const COLORS = 8;
const ROW = 26;

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

function legend(names) {
  return h("ul", { class: "legend" }, names.map((name, i) =>
    h("li", {}, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { class: `s${i % COLORS}`, width: 10, height: 10, rx: 2 })), name)));
}

const round = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

function figure(title, picture, below) {
  return h("figure", {}, h("figcaption", {}, title), picture, below);
}

function frame(width, height, label, ...children) {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, children);
}

/** Columns stacked from buckets, drawn as rows: the phases of a step, what is used, the capacity. */
function stack(chart, width) {
  const names = chart.series[0].x;
  const left = Math.min(130, width * 0.3), right = 46, room = width - left - right;
  const sums = names.map((_, i) => chart.series.reduce((sum, one) => sum + one.y[i], 0));
  const high = chart.whisker ? chart.whisker[2] : 0;
  const most = Math.max(...sums, ...chart.marks.map(([value]) => value), high) || 1;
  const at = (value) => left + (room * value) / most;
  const rows = names.map((name, i) => {
    let from = 0;
    const parts = chart.series.map((one, k) => {
      const part = s("rect", { class: `s${k % COLORS}`, x: at(from), y: i * ROW + 5, width: Math.max(at(from + one.y[i]) - at(from), 0), height: ROW - 10 });
      from += one.y[i];
      return part;
    });
    const last = chart.whisker && chart.whisker[0] === name;
    const [low, top] = last ? [at(chart.whisker[1]), at(chart.whisker[2])] : [0, 0];
    const y = i * ROW + ROW / 2;
    const whisker = last ? s("path", { class: "whisker", d: `M${low} ${y - 5}v10M${low} ${y}H${top}M${top} ${y - 5}v10` }) : "";
    return [s("text", { x: left - 8, y: y + 4, "text-anchor": "end", class: last ? "strong" : "" }, name.replace(" (nvidia-smi)", "")),
      parts, whisker, s("text", { x: width, y: y + 4, "text-anchor": "end", class: last ? "strong" : "" }, round(sums[i]))];
  });
  const bottom = names.length * ROW;
  const marks = chart.marks.map(([value, name]) => [s("path", { class: "capacity", d: `M${at(value)} 0V${bottom}` }),
    s("text", { x: at(value), y: bottom + 14, "text-anchor": "middle" }, name.replace(/\s+/g, " "))]);
  const label = names.map((name, i) => `${name} ${round(sums[i])}`).join(", ");
  return figure(`Memory of one GPU in each phase, ${chart.y}`, frame(width, bottom + 20, label, rows, marks), legend(chart.series.map((one) => one.name)));
}

function partsOf(chart) {
  const { x: names, y } = chart.series[0];
  return names.slice(0, -1).map((name, i) => [name, y[i]]).filter(([, value]) => value > 0);
}

/** Parts of a whole as one strip; the last row is the whole. */
function strip(chart, width) {
  const parts = partsOf(chart);
  const whole = parts.reduce((sum, [, value]) => sum + value, 0) || 1;
  let from = 0;
  const drawn = parts.map(([, value], i) => {
    const part = s("rect", { class: `s${i % COLORS}`, x: from, y: 0, width: (width * value) / whole, height: 22 });
    from += (width * value) / whole;
    return part;
  });
  const label = parts.map(([name, value]) => `${name} ${round((100 * value) / whole)}%`).join(", ");
  return figure("Parts of a step", frame(width, 22, label, drawn), legend(parts.map(([name]) => name)));
}

/** The schedule of a pipeline: a row for each stage, a bar for each pass. */
function timeline(chart, width) {
  const kinds = [...new Set(chart.spans.map((span) => span[3]))];
  const left = 60, end = chart.until || Math.max(...chart.spans.map(([, start, length]) => start + length)) || 1;
  const at = (time) => left + ((width - left) * time) / end;
  const rows = chart.rows.map((name, i) => s("text", { x: left - 6, y: i * 18 + 13, "text-anchor": "end" }, name));
  const bars = chart.spans.filter(([, start]) => start < end).map(([row, start, length, kind, , shade]) =>
    s("rect", { class: `s${kinds.indexOf(kind) % COLORS}`, x: at(start), y: row * 18 + 1, width: Math.max(at(Math.min(start + length, end)) - at(start) - 0.5, 0.3), height: 16, "fill-opacity": shade }));
  return figure(chart.title, frame(width, chart.rows.length * 18 + 4, chart.title, rows, bars), legend(kinds));
}

/** Return what has a color in the pictures of an answer, in the order of the colors. */
export function colored(found) {
  const [chart] = found;
  if (chart?.kind === "stack") return chart.series.map((one) => one.name);
  return chart?.kind === "rows" ? partsOf(chart).map(([name]) => name) : [];
}

const KINDS = { stack, rows: strip, timeline };

/** Return the pictures of an answer, for a width in pixels. */
export function charts(found, width) {
  return found.filter((chart) => chart.kind in KINDS && (chart.series.length || chart.spans.length)).map((chart) => KINDS[chart.kind](chart, width));
}
