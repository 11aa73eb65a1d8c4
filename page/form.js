// The form of a question, drawn from what the option registry says.

import { h } from "./dom.js";

const POPULAR = 14; // more names than this are offered in a list, not as choices

/** Return the index of the stop that is nearest to a number, by ratio. */
export function nearest(stops, value) {
  let best = 0;
  stops.forEach((stop, index) => {
    if (Math.abs(Math.log(amount(stop) / value)) < Math.abs(Math.log(amount(stops[best]) / value))) best = index;
  });
  return best;
}

/** Return the number of a stop's text: `1.5B`, `30d`, `0.4`. */
export function amount(text) {
  const found = /^([\d.]+)([a-zA-Z]*)$/.exec(text);
  const scale = { "": 1, k: 1e3, M: 1e6, B: 1e9, T: 1e12, d: 86400 }[found[2]];
  return Number(found[1]) * scale;
}

/** Return whether a text is a number of a kind that stops have. */
const isPlain = (text) => /^[\d.]+[kMBTd]?$/.test(text) && amount(text) > 0;

export class Form {
  /** form: the element; lists: names by option; changed(name): called when a field changes. */
  constructor(form, lists, changed, modelTools) {
    this.form = form;
    this.changed = changed;
    this.modelTools = modelTools;
    this.inputs = {};
    this.sliders = {};
    document.body.append(
      ...Object.entries(lists).map(([name, names]) =>
        h("datalist", { id: `names-${name}` }, names.map((one) => h("option", { value: one }))),
      ),
    );
  }

  /** Draw the fields of a question with these texts. */
  draw(question, texts) {
    this.question = question;
    this.inputs = {};
    this.sliders = {};
    this.boxes = {};
    const first = question.first.map((name) => this.field(name));
    this.groups = question.groups.map((group) =>
      h("details", { class: "group", open: group.fields.some((name) => name in texts) },
        h("summary", {}, group.heading, h("span", { class: "count" }, ` ${group.fields.length}`)),
        group.fields.map((name) => this.field(name))));
    const find = h("input", { id: "find", type: "search", placeholder: "Find an option", "aria-label": "Find an option" });
    find.addEventListener("input", () => this.filter(find.value));
    find.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
    const count = question.groups.reduce((sum, group) => sum + group.fields.length, 0);
    const more = count ? [h("h2", { class: "all" }, `${count} more options`), count > 8 ? find : "", this.groups] : [];
    this.form.replaceChildren(h("div", { class: "first" }, first), h("div", { class: "rest" }, more));
    this.put(texts);
  }

  filter(words) {
    const wanted = words.toLowerCase().replace(/^-+/, "").trim();
    for (const group of this.groups) {
      let shown = 0;
      for (const box of group.querySelectorAll(".field")) {
        box.hidden = !box.textContent.toLowerCase().includes(wanted);
        shown += !box.hidden;
      }
      group.hidden = !shown;
      group.open = Boolean(wanted) || [...group.querySelectorAll("input[type=text], select")].some((input) => input.value);
    }
  }

  field(name) {
    const field = this.question.fields[name];
    const id = `field-${name}`;
    const input = this.control(field, id);
    this.inputs[name] = input;
    const unit = field.unit && !/^(GPU|token|param|second)$/.test(field.unit) ? ` (${field.unit})` : "";
    const label = h("label", { for: id }, field.help + unit, h("span", { class: "name" }, field.argument ? "MODEL" : `--${name}`));
    const wrong = h("p", { class: "wrong", id: `wrong-${name}`, hidden: true });
    const wide = field.listed || field.choices.length > POPULAR || name === "model";
    const box = h("div", { class: wide ? "field wide" : "field" }, h("div", { class: "top" }, label, input));
    if (field.stops.length && this.question.first.includes(name)) box.append(this.slider(field, input));
    if (name === "model") box.append(this.modelTools);
    box.append(wrong);
    this.boxes[name] = box;
    return box;
  }

  control(field, id) {
    const told = () => this.edited(field.name);
    const about = { id, name: field.name, "aria-describedby": `wrong-${field.name}` };
    if (field.kind === "flag") return h("input", { ...about, type: "checkbox", onchange: told });
    if (field.kind === "text") {
      const placeholder = field.default.split(",")[0] || (field.name === "model" ? "llama3-8b, 7B, ./config.json" : "");
      const list = field.listed ? `names-${field.name}` : null;
      const input = h("input", { ...about, type: "text", placeholder, title: field.default, list, spellcheck: "false", autocapitalize: "off", oninput: told });
      input.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
      return input;
    }
    const words = field.kind === "two-way" ? ["on", "off"] : field.choices;
    const none = field.default ? `${field.default} (default)` : "not given";
    return h("select", { ...about, onchange: told }, h("option", { value: "" }, none), words.map((word) => h("option", { value: word }, word)));
  }

  slider(field, input) {
    const slider = h("input", {
      type: "range", min: 0, max: field.stops.length - 1, step: 1, "aria-label": `${field.help}, slider`, class: "slider",
    });
    slider.addEventListener("input", () => {
      input.value = field.stops[slider.value];
      slider.classList.remove("unset");
      slider.setAttribute("aria-valuetext", input.value);
      this.changed(field.name);
    });
    this.sliders[field.name] = slider;
    return slider;
  }

  edited(name) {
    this.placed(name);
    this.changed(name);
  }

  /** Move the slider to its field's text, where that is a plain number. */
  placed(name) {
    const slider = this.sliders[name];
    if (!slider) return;
    const text = this.inputs[name].value.trim();
    const { stops, default: usual } = this.question.fields[name];
    const shown = text || usual.split(",")[0];
    slider.value = isPlain(shown) ? nearest(stops, amount(shown)) : 0;
    slider.classList.toggle("unset", !text);
    slider.setAttribute("aria-valuetext", text || "not given");
  }

  /** Move the slider of a field that is left empty to the value that an answer has for it. */
  shows(name, value) {
    const slider = this.sliders[name];
    if (!slider || this.inputs[name].value.trim() || !(value > 0)) return;
    slider.value = nearest(this.question.fields[name].stops, value);
  }

  put(texts) {
    for (const [name, input] of Object.entries(this.inputs)) {
      const text = texts[name];
      if (input.type === "checkbox") input.checked = text === true;
      else input.value = typeof text === "boolean" ? (text ? "on" : "off") : (text ?? "");
      this.placed(name);
    }
  }

  /** Return the texts of the fields that are filled. */
  texts() {
    const found = {};
    for (const [name, input] of Object.entries(this.inputs)) {
      if (input.type === "checkbox") {
        if (input.checked) found[name] = true;
      } else if (input.value.trim()) {
        const text = input.value.trim();
        found[name] = this.question.fields[name].kind === "two-way" ? text === "on" : text;
      }
    }
    return found;
  }

  /** Show problems next to the fields that they name. */
  complain(problems) {
    for (const [name, input] of Object.entries(this.inputs)) {
      const mine = problems.filter((problem) => problem.option === name);
      const wrong = this.boxes[name].querySelector(".wrong");
      wrong.hidden = !mine.length;
      wrong.replaceChildren(...mine.flatMap((one) => [one.message, h("span", {}, one.hint)]));
      if (mine.length) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      const group = input.closest("details.group");
      if (mine.length && group) group.open = true;
    }
  }
}
