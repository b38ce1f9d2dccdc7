/**
 * What the model is to read: a text to type, a file to drop, or an example to pick.
 */

import { element } from "./element.js";
import { answer } from "./output.js";

const FILES = { image: "image/*", sound: "audio/*,.wav,.flac,.ogg" };
const ASKS = { text: "Text", texts: "Texts, one a line", word: "Word", image: "Picture", sound: "Recording" };
const EXAMPLES = { // of those that the server has none for
  text: ["The animal did not cross the street because it was too tired."],
  sound: [{ title: "Six spoken digits", file: "digits.wav" }],
};

/** Build the pane of the input and the answer. */
export function mount(host, store) {
  new Input(host, store);
}

class Input {
  constructor(host, store) {
    this.store = store;
    this.model = element("select", { id: "model", on: { change: () => store.choose(this.model.value) } });
    this.form = element("form", { class: "ask", on: { submit: (event) => this.submit(event) } });
    this.error = element("p", { class: "refused", role: "alert", hidden: true });
    this.output = element("div", { class: "output", "aria-live": "polite" });
    this.result = element("section", { class: "result", hidden: true, "aria-label": "Answer" }, element("h2", { class: "pane-title" }, "Answer"), this.output);
    host.append(field("Model", this.model), this.form, this.error, this.result);
    store.on("models", () => this.list());
    store.on("model", () => this.build());
    store.on("busy", () => this.wait());
    store.on("error", () => this.fail());
    store.on("inspection", () => this.show());
  }

  list() {
    this.model.replaceChildren(...this.store.models.map(({ name, task }) => element("option", { value: name }, `${name}  (${task.replaceAll("_", " ")})`)));
  }

  /** The form that fits the model; its first example is read at once, so that there is something to see. */
  build() {
    const { model } = this.store;
    if (!model) return;
    this.model.value = model.name;
    this.file = null;
    this.needed = optionFields(model.required_inputs, model.input);
    this.options = optionFields(model.options);
    const entry = FILES[model.input] ? this.drop(model.input) : this.type(model.input);
    this.go = element("button", { type: "submit", class: "primary", id: "read" }, "Read");
    const examples = (model.examples.length ? model.examples : (EXAMPLES[model.input] ?? [])).map((example) => this.example(example));
    const offered = examples.length ? element("div", { class: "examples", role: "group", "aria-label": "Examples" }, ...examples) : null;
    const more = this.options.length ? element("details", { class: "options" }, element("summary", {}, "Options"), ...this.options.map((one) => one.element)) : "";
    this.form.replaceChildren(entry, ...this.needed.map((one) => one.element), offered ?? "", more, this.go);
    if (examples.length) examples[0].click();
  }

  type(kind) {
    const rows = kind === "word" ? 1 : 4;
    this.text = element("textarea", { id: "text", rows, spellcheck: "false", dir: "auto", placeholder: kind === "word" ? "A word" : "A sentence" });
    this.text.addEventListener("keydown", (event) => {
      const send = event.key === "Enter" && (event.ctrlKey || event.metaKey || (kind === "word" && !event.shiftKey));
      if (!send) return;
      event.preventDefault();
      this.form.requestSubmit();
    });
    return field(ASKS[kind] ?? "Text", this.text);
  }

  drop(kind) {
    this.text = null;
    this.picker = element("input", { type: "file", id: "file", accept: FILES[kind], class: "sr", on: { change: () => this.take(this.picker.files[0]) } });
    this.dropped = element("span", { class: "dropped" }, kind === "image" ? "Drop a picture here, or choose one" : "Drop a recording here, or choose one");
    const zone = element("label", { class: "drop", for: "file" }, this.picker, this.dropped);
    zone.addEventListener("dragover", (event) => {
      event.preventDefault();
      zone.classList.add("over");
    });
    zone.addEventListener("dragleave", () => zone.classList.remove("over"));
    zone.addEventListener("drop", (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      this.take(event.dataTransfer.files[0]);
    });
    return element("div", { class: "field" }, element("span", { class: "label" }, ASKS[kind]), zone);
  }

  take(file) {
    if (!file) return;
    this.file = file;
    this.dropped.textContent = file.name;
    this.form.requestSubmit();
  }

  /** A button for an example: a text, a text with what else it needs, or a file that came with the page. */
  example(example) {
    const { input } = this.store.model;
    const title = example.title ?? (typeof example === "string" ? example : this.needed.map(({ name }) => example[name]).join(" "));
    const use = async () => {
      if (this.text) {
        this.text.value = example[input] ?? example;
        for (const one of this.needed) one.set(example[one.name] ?? "");
        this.form.requestSubmit();
      } else this.take(await fetched(example.file));
    };
    return element("button", { type: "button", class: "example", dir: "auto", title, on: { click: use } }, title);
  }

  submit(event) {
    event.preventDefault();
    const { model } = this.store;
    const fields = [...this.needed, ...this.options];
    const chosen = Object.fromEntries(fields.map((one) => [one.name, one.get()]).filter(([, value]) => value !== ""));
    const given = this.text ? this.text.value : this.file;
    if (given) this.store.read({ [model.input]: given, ...chosen });
    else this.store.fail(new Error(this.text ? "Type something first." : `Choose a ${ASKS[model.input].toLowerCase()} first.`));
  }

  wait() {
    const { busy } = this.store;
    document.documentElement.classList.toggle("busy", busy);
    if (this.go) this.go.textContent = busy ? "Reading…" : "Read";
    this.form.setAttribute("aria-busy", String(busy));
  }

  fail() {
    const { error } = this.store;
    this.error.hidden = !error;
    this.error.textContent = error?.message ?? "";
  }

  show() {
    const { inspection } = this.store;
    this.result.hidden = !inspection || !answer(this.output, inspection.output);
  }
}

/** A file of the page, as if it had been dropped. */
async function fetched(name) {
  const answer = await fetch(new URL(name, import.meta.url));
  return new File([await answer.blob()], name);
}

function field(title, control) {
  return element("label", { class: "field" }, element("span", { class: "label" }, title), control);
}

/** Fields for more of what a task reads, {name: kind}; what is left empty is for the task to choose, if it can. */
function optionFields(options, besides = null) {
  return Object.entries(options).map(([name, kind]) => {
    const numeric = kind.startsWith("number");
    const placeholder = besides === null ? "as usual" : `A ${name} about the ${besides}`;
    const control = element("input", { type: numeric ? "number" : "text", step: "any", placeholder, name, dir: "auto" });
    const get = () => (numeric && control.value !== "" ? Number(control.value) : control.value);
    const set = (value) => (control.value = value);
    const title = name.replaceAll("_", " ");
    return { name, element: field(besides === null ? title : title[0].toUpperCase() + title.slice(1), control), get, set };
  });
}
