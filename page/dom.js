// Elements without markup: a text is always a text, whatever a file or a name holds.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined && (value !== "" || name === "value")) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

/** Return an HTML element: attributes by name, `on…` are listeners, children are nodes or texts. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Return an SVG element. */
export function s(tag, attributes = {}, ...children) {
  const numbers = Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [name, typeof value === "number" ? value.toFixed(2) : value]),
  );
  return filled(document.createElementNS(SVG, tag), numbers, children);
}

export const byId = (id) => document.getElementById(id);
