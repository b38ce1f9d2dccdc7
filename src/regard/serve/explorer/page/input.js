/**
 * The input pane: a text to type, a file to drop, or an example to choose.
 */

import { element, modelOptions } from "./element.js";
import { recall, remember, TAB } from "./memory.js";
import { answer } from "./output.js";

const FILES = { image: "image/*", audio: "audio/*,.wav,.flac,.ogg", points: ".ply,.off,.obj,.npy,.xyz", graph: ".edges,.edgelist,.graphml" };
const LABELS = { text: "Text", image: "Image", audio: "Recording", points: "Point cloud", graph: "Graph", place: "Place" };
const NAMES = { image: "an image", audio: "a recording", points: "a point cloud", graph: "a graph" };
const HINTS = { text: "A sentence", place: "Latitude, longitude" };
const EXAMPLES = { // for inputs without examples on the server
  text: ["The animal did not cross the street because it was too tired."],
  audio: [{ title: "Six spoken digits", file: "digits.wav" }],
  points: [{ title: "A torus", file: "torus.xyz" }],
  graph: [{ title: "Caffeine", file: "caffeine.edges" }],
};

/** Build the pane of the input and the answer. */
export function mount(host, store) {
  new Input(host, store);
}

class Input {
  constructor(host, store) {
    this.store = store;
    this.model = element("select", { id: "model", "aria-describedby": "model-does", on: { change: () => store.choose(this.model.value) } });
    this.does = element("p", { class: "hint", id: "model-does" });
    this.form = element("form", { class: "ask", on: { submit: (event) => this.submit(event), input: () => this.keep() } });
    this.form.addEventListener("invalid", ({ target }) => target.closest("details")?.setAttribute("open", ""), true); // the browser says why, if it is seen
    this.error = element("p", { class: "refused", role: "alert", hidden: true });
    this.output = element("div", { class: "output", "aria-live": "polite" });
    this.result = element("section", { class: "result", hidden: true, "aria-label": "Answer" }, element("h2", { class: "pane-title" }, "Answer"), this.output);
    host.append(element("div", { class: "field" }, field("Model", this.model), this.does), this.form, this.error, this.result);
    store.on("models", () => this.list());
    store.on("model", () => this.build());
    store.on("busy", () => this.wait());
    store.on("error", () => this.fail());
    store.on("inspection", () => this.show());
  }

  list() {
    this.model.replaceChildren(...modelOptions(this.store.models));
  }

  /** Build the form for the model and run its first example. */
  build() {
    const { model } = this.store;
    if (!model) return;
    this.model.value = model.name;
    this.does.textContent = named(model.description || model.task);
    this.file = null;
    const [[first, kind], ...further] = Object.entries(model.inputs);
    [this.first, this.kind] = [first, kind];
    this.required = further.map(([name, other]) => inputField(name, other, first));
    this.options = Object.entries(model.options).map(([name, schema]) => optionField(name, schema));
    const entry = FILES[kind] ? this.drop(kind) : this.type(kind);
    this.go = element("button", { type: "submit", class: "primary", id: "read" }, "Run");
    const examples = (model.examples.length ? model.examples : (EXAMPLES[kind] ?? [])).map((example) => this.example(example));
    const offered = examples.length ? element("div", { class: "examples", role: "group", "aria-label": "Examples" }, element("span", { class: "label" }, examples.length > 1 ? "Examples" : "Example"), ...examples) : null;
    const more = this.options.length ? element("details", { class: "options" }, element("summary", {}, "Options"), ...this.options.map((one) => one.element)) : "";
    this.form.replaceChildren(entry, ...this.required.map((one) => one.element), offered ?? "", more, this.go);
    if (!this.restore() && examples.length) examples[0].click();
  }

  /** Keep what was typed for this model, until the tab is closed; it is sent nowhere. */
  keep() {
    const fields = [...this.required, ...this.options].map(({ name, control }) => [name, control.type === "checkbox" ? control.checked : control.value]);
    remember(`regard-input ${this.store.model.name}`, JSON.stringify({ text: this.text?.value, fields: Object.fromEntries(fields) }), TAB);
  }

  /** Fill in what was kept, as after a reload, and run it; false where there is no text among it. */
  restore() {
    const { text, fields } = JSON.parse(recall(`regard-input ${this.store.model.name}`, TAB) ?? "{}");
    for (const { name, control } of [...this.options, ...(text ? this.required : [])]) {
      const value = fields?.[name] ?? "";
      if (typeof value === "boolean") control.checked = value;
      else if (value !== "") control.value = value;
    }
    if (this.options.some(({ get }) => get() !== "")) this.form.querySelector(".options").open = true;
    if (!this.text || !text) return false;
    this.text.value = text;
    this.form.requestSubmit();
    return true;
  }

  type(kind) {
    this.text = element("textarea", { id: "text", rows: 4, spellcheck: "false", dir: "auto", placeholder: HINTS[kind] ?? `${kind} as JSON` });
    this.text.addEventListener("keydown", (event) => {
      const send = event.key === "Enter" && (event.ctrlKey || event.metaKey);
      if (!send) return;
      event.preventDefault();
      this.form.requestSubmit();
    });
    return field(LABELS[kind] ?? named(kind), this.text);
  }

  drop(kind) {
    this.text = null;
    this.picker = element("input", { type: "file", id: "file", accept: FILES[kind], class: "sr", on: { change: () => this.take(this.picker.files[0]), click: () => (this.picker.value = "") } }); // the same file may be taken again
    this.dropped = element("span", { class: "dropped" }, `Drop ${NAMES[kind]} here, or choose one`);
    this.thumbnail = element("img", { class: "thumbnail", alt: "", hidden: true });
    this.thumbnail.addEventListener("load", () => {
      this.thumbnail.classList.toggle("small", Math.max(this.thumbnail.naturalWidth, this.thumbnail.naturalHeight) < 80);
      this.thumbnail.hidden = false;
    });
    this.thumbnail.addEventListener("error", () => (this.thumbnail.hidden = true)); // a format that the browser does not know
    const zone = element("label", { class: "drop", for: "file" }, this.picker, element("span", {}, this.thumbnail, element("br"), this.dropped));
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
    return element("div", { class: "field" }, element("span", { class: "label" }, LABELS[kind]), zone);
  }

  take(file) {
    if (!file) return;
    if (!file.size) return this.store.refuse(new Error(`${file.name} is empty.`));
    this.file = file;
    this.dropped.textContent = file.name;
    if (this.kind === "image") this.preview(file);
    this.form.requestSubmit();
  }

  /** Show the picture that was dropped. */
  preview(file) {
    URL.revokeObjectURL(this.thumbnail.src);
    this.thumbnail.hidden = true;
    this.thumbnail.src = URL.createObjectURL(file);
  }

  /** A button for an example: a text, a text with further inputs, or a file of the page. */
  example(example) {
    const title = example.title ?? (typeof example === "string" ? example : this.required.map(({ name }) => example[name]).join(" "));
    const use = async () => {
      if (this.text) {
        this.text.value = example[this.first] ?? example;
        for (const { name, control } of this.required) control.value = example[name] ?? "";
        this.keep();
        this.form.requestSubmit();
      } else {
        for (const { name, control } of this.required.filter(({ name }) => name in example)) control.value = example[name];
        this.take(await fetchFile(example.file));
      }
    };
    return element("button", { type: "button", class: "example", dir: "auto", title, on: { click: use } }, title);
  }

  submit(event) {
    event.preventDefault();
    const fields = [...this.required, ...this.options];
    const chosen = Object.fromEntries(fields.map((one) => [one.name, one.get()]).filter(([, value]) => value !== "" && value !== undefined));
    const value = this.text ? this.text.value : this.file;
    if (!value) return this.store.refuse(new Error(this.text ? "Enter a text first." : `Choose ${NAMES[this.kind]} first.`));
    try {
      this.store.read({ [this.first]: this.kind in LABELS ? value : JSON.parse(value), ...chosen });
    } catch {
      this.store.refuse(new Error(`The ${this.first} must be JSON.`));
    }
  }

  wait() {
    const { busy } = this.store;
    document.documentElement.classList.toggle("busy", busy);
    if (this.go) this.go.textContent = busy ? "Running…" : "Run";
    this.form.setAttribute("aria-busy", String(busy));
  }

  fail() {
    const { error } = this.store;
    this.error.hidden = !error;
    this.error.textContent = error?.message ?? "";
  }

  show() {
    const { inspection } = this.store;
    this.result.hidden = !inspection || !answer(this.output, inspection, () => this.store.picture());
  }
}

/** A file of the page, as if it had been dropped. */
async function fetchFile(name) {
  const answer = await fetch(new URL(name, import.meta.url));
  return new File([await answer.blob()], name);
}

function field(title, control, says = "") {
  return element("label", { class: "field" }, element("span", { class: "label" }, title), control, says ? element("span", { class: "hint" }, says) : null);
}

/** The field of a further input; of the first of them and the others only the first may be a file. */
function inputField(name, kind, first) {
  const control = element("input", { type: "text", placeholder: kind === "text" ? `A ${name} about the ${first}` : `${kind} as JSON`, name, dir: "auto" });
  const get = () => (kind === "text" || control.value === "" ? control.value : JSON.parse(control.value));
  return { name, control, element: field(named(name), control), get };
}

/** The control of an option, made from its JSON schema; one that is left as it is takes its default. */
function optionField(name, schema) {
  const { type, enum: choices, items } = schema.anyOf?.find((one) => one.type !== "null") ?? schema;
  const { description, default: usual = null } = schema;
  const numeric = type === "integer" || type === "number";
  const attributes = { name };
  const placeholder = usual === null || String(usual) === "" ? "default" : String(usual);
  const title = name.replaceAll("_", " ");
  if (type === "boolean") {
    const control = element("input", { ...attributes, type: "checkbox" });
    control.checked = Boolean(usual);
    return { name, control, element: field(title, control, description), get: () => (control.checked === Boolean(usual) ? "" : control.checked) };
  }
  if (choices) {
    const control = element("select", attributes, ...choices.map((each) => element("option", { value: each, selected: each === usual }, String(each))));
    return { name, control, element: field(title, control, description), get: () => (control.value === String(usual) ? "" : control.value) };
  }
  const limits = numeric ? { step: type === "integer" ? 1 : "any", min: schema.minimum, max: schema.maximum } : {};
  const control = element("input", { ...attributes, ...limits, type: numeric ? "number" : "text", placeholder, dir: "auto" });
  const words = () => control.value.split(",").map((word) => word.trim()).filter(Boolean);
  const list = () => (control.value === "" ? "" : items?.type === "string" ? words() : words().map(Number));
  const get = () => (type === "array" ? list() : numeric && control.value !== "" ? Number(control.value) : control.value);
  return { name, control, element: field(title, control, description), get };
}

/** A name as a label. */
function named(name) {
  const title = name.replaceAll("_", " ");
  return title[0].toUpperCase() + title.slice(1);
}
