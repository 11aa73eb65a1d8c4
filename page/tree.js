// Where a number is from: every quantity opens into what it is computed from.

import { h } from "./dom.js";

function node(tree, path, name) {
  const term = tree.terms[path];
  if (!term) return null;
  const said = [h("code", {}, name), ` = ${term.value}`];
  const source = term.source ? h("span", { class: "source" }, term.source) : "";
  if (!term.parts || !term.parts.length) {
    return h("li", {}, h("span", {}, said, h("i", { class: "source" }, ` (${term.kind}) ${term.source}`)));
  }
  const inside = h("ul");
  const opened = h("details", {}, h("summary", {}, said, " = ", h("code", {}, term.formula)), source, inside);
  opened.addEventListener("toggle", () => {
    if (!inside.childElementCount) inside.append(...term.parts.map((part) => node(tree, part, part)).filter(Boolean));
  });
  return h("li", {}, opened);
}

/** Return the published quantities as a tree that opens. */
export function drawTree(tree) {
  return h("ul", {}, tree.published.map((path) => node(tree, path, path)).filter(Boolean));
}
