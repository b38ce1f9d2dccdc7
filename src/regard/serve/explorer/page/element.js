/**
 * The one way this page makes elements: words become text, never markup, so that nothing a user or a model writes can
 * be more than words.
 */

/**
 * An element. Attributes are set as given (true: present, false or null: left out), `on` holds listeners, children are
 * nodes or texts.
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, hear] of Object.entries(value)) made.addEventListener(event, hear);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/**
 * Lines of a formula, their columns below one another. Where that does not fit, lines break between their parts and go on
 * below, set in, so that nothing is cut off.
 */
export function formulaLines(text) {
  const part = (each) => (each.trim() ? element("span", { class: "part" }, each) : each);
  const lines = text.split("\n").map((line) => element("span", { class: "line-of-formula" }, ...(line || " ").split(/( {2,})/).filter(Boolean).map(part)));
  const made = element("pre", { class: "formula", tabindex: "0" }, ...lines);
  new ResizeObserver(() => {
    made.classList.remove("narrow");
    made.classList.toggle("narrow", made.scrollWidth > made.clientWidth);
  }).observe(made);
  return made;
}

/** A row of buttons of which one is pressed; arrows move between them. `pick(value)` is called on a choice. */
export function choice(label, options, pick) {
  const box = element("div", { class: "choice", role: "radiogroup", "aria-label": label });
  for (const { value, title, hint } of options) {
    const attributes = { type: "button", role: "radio", class: "choice-one", "data-value": value, title: hint };
    box.append(element("button", { ...attributes, on: { click: () => pick(value) } }, title));
  }
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...box.children].filter((one) => !one.disabled);
    const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
    next.focus();
    next.click();
  });
  return box;
}

/** Show which of a choice's buttons is pressed; only that one is reached by Tab. */
export function press(box, value) {
  for (const one of box.children) {
    const pressed = one.dataset.value === String(value);
    one.setAttribute("aria-checked", String(pressed));
    one.tabIndex = pressed ? 0 : -1;
  }
}

/** Options of a select of models, grouped by task where there are several. */
export function modelOptions(models) {
  const option = ({ name }) => element("option", { value: name }, name);
  const tasks = new Map();
  for (const model of models) tasks.set(model.task, [...(tasks.get(model.task) ?? []), model]);
  if (tasks.size < 2) return models.map(option);
  return [...tasks].map(([task, several]) => element("optgroup", { label: task.replaceAll("_", " ") }, ...several.map(option)));
}

/** A length or another plain number, in three digits. */
export function number(value) {
  return Number(value.toPrecision(3)).toString();
}

/** A share as a percentage, as fine as it deserves. */
export function percent(share) {
  const value = 100 * share;
  if (Math.abs(value) >= 9.95) return `${value.toFixed(0)} %`;
  if (Math.abs(value) >= 0.095) return `${value.toFixed(1)} %`;
  return value === 0 ? "0 %" : value > 0 ? "< 0.1 %" : "> −0.1 %";
}

/** A multiple: how many times something. */
export function times(ratio) {
  return `${ratio < 0.095 && ratio > 0 ? "< 0.1" : ratio.toFixed(ratio < 9.95 ? 1 : 0)} ×`;
}
