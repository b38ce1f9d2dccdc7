/**
 * The search view: a decoding search, step by step.
 *
 * Left: input and search settings. Right: the tree of hypotheses (search_tree.js) with the attention of each beam and the
 * candidates (search_details.js), or the lattice of a CTC model (search_lattice.js).
 *
 * Keys: left and right step, up and down choose a hypothesis, space plays, Home and End go to the ends.
 */

import { choice, element, modelOptions, press } from "./element.js";
import { ask } from "./remote.js";
import { SearchLattice } from "./search_lattice.js";
import { SearchTree } from "./search_tree.js";

const PACE = 900; // milliseconds per step
const FRAME_PACE = 120;
const METHODS = { beam: "Beam", greedy: "Greedy", diverse: "Diverse beam", sample: "Sample" };
const HINTS = {
  beam: "Keep the best few hypotheses",
  greedy: "Always the most likely token",
  diverse: "Groups of beams that avoid each other's tokens",
  sample: "Sample each token from its distribution",
};
// name: [label, which methods use it, smallest, largest, step]
const NUMBERS = {
  beam_size: ["Beam size", ["beam", "diverse"], 1, 8, 1],
  groups: ["Groups", ["diverse"], 1, 8, 1],
  diversity: ["Diversity penalty", ["diverse"], 0, 20, 0.1],
  length_penalty: ["Length penalty", ["beam", "diverse"], -2, 4, 0.1],
  num_candidates: ["Samples", ["sample"], 1, 8, 1],
  temperature: ["Temperature", ["sample"], 0.05, 10, 0.05],
  top_k: ["Top-k (0: all)", ["sample"], 0, 100000, 1],
  top_p: ["Top-p", ["sample"], 0.01, 1, 0.01],
  min_p: ["Min-p", ["sample"], 0, 1, 0.01],
  seed: ["Seed", ["sample"], 0, 4294967295, 1],
  max_new_tokens: ["New tokens", ["beam", "greedy", "sample"], 1, 128, 1],
};

/** Build the search view. */
export function mount(host, store) {
  const sheet = new URL("./search_view.css", import.meta.url).href;
  document.head.append(element("link", { rel: "stylesheet", href: sheet }));
  new SearchView(host, store);
}

class SearchView {
  constructor(host, store) {
    this.store = store;
    this.models = [];
    this.defaults = {};
    this.stage = null;
    this.at = 0;
    this.clock = null;
    this.turn = 0;
    this.asked = false; // whether what stands there was searched
    this.build(host);
    store.on("models", () => this.open());
    store.on("model", () => this.follow(store.model?.name));
    store.on("inspection", () => this.take(store.inspection));
    store.on("theme", () => this.stage?.show(this.at));
    window.addEventListener("hashchange", () => this.begin());
    if (store.models.length) this.open();
  }

  /** Whoever comes here first sees a search: that of the last input of the page, or of an example. */
  begin() {
    if (location.hash === "#search" && !this.asked && this.words?.value) this.ask();
  }

  build(host) {
    this.model = element("select", { id: "search-model", on: { change: () => this.choose(this.model.value) } });
    this.entry = element("div", { class: "search-entry" });
    this.methods = element("div");
    this.numbers = element("div", { class: "search-numbers" });
    this.go = element("button", { type: "submit", class: "primary", id: "search-go" }, "Search");
    this.error = element("p", { class: "refused", role: "alert", hidden: true });
    const form = element(
      "form", { class: "search-ask", on: { submit: (event) => this.submit(event) } },
      labelled("Model", this.model), this.entry, this.methods, this.numbers, this.go, this.error,
    );
    this.back = this.button("◀", "Back one step", () => this.move(-1));
    this.play = this.button("Play", "Play or pause", () => this.toggle());
    this.forward = this.button("▶", "Forward one step", () => this.move(1));
    this.slider = element("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step", on: { input: () => this.show(Number(this.slider.value)) } });
    this.says = element("p", { class: "search-says", "aria-live": "polite" });
    this.bar = element("div", { class: "search-bar", hidden: true }, this.back, this.play, this.forward, this.slider, this.says);
    this.board = element("div", { class: "search-board", tabindex: "0", "aria-label": "The search. Left and right step, up and down choose, space plays." });
    this.board.addEventListener("keydown", (event) => this.key(event));
    this.board.append(nothing());
    host.classList.add("search-view");
    host.append(form, element("section", { class: "search-stage", "aria-label": "Search steps" }, this.bar, this.board));
  }

  button(sign, label, act) {
    return element("button", { type: "button", class: "quiet", "aria-label": label, title: label, on: { click: act } }, sign);
  }

  /** Fetch the models that search, and their methods. */
  async open() {
    try {
      ({ models: this.models, defaults: this.defaults } = await (await ask("/explore/search")).json());
    } catch (error) {
      return this.fail(error);
    }
    this.model.replaceChildren(...modelOptions(this.models));
    this.choose((this.models.find(({ name }) => name === this.store.model?.name) ?? this.models[0])?.name);
  }

  /** Follow the model of the page, if it can search. */
  follow(name) {
    if (this.models.some((one) => one.name === name) && name !== this.chosen?.name) this.choose(name);
  }

  /** Take over the last input of the page, unless another was entered here. */
  take(inspection) {
    if (!inspection || inspection.model !== this.chosen?.name || this.touched) return;
    if (!this.words) {
      this.inputs = { inspection: inspection.id };
      return;
    }
    const text = inspection.inputs?.text ?? this.words.value;
    if (text === this.words.value) return;
    this.words.value = text;
    this.forget();
    this.begin();
  }

  /** Show no search: the last one is of another text, or of another model. */
  forget() {
    this.turn += 1; // nor the one under way
    this.asked = false;
    this.go.textContent = "Search";
    this.clear(null);
  }

  choose(name) {
    this.chosen = this.models.find((one) => one.name === name);
    if (!this.chosen) return;
    this.forget();
    this.model.value = name;
    this.inputs = null;
    this.touched = false;
    this.entry.replaceChildren(...(this.chosen.input === "audio" ? this.audio() : this.text()));
    const { methods } = this.chosen;
    const box = choice("Search", methods.map((value) => ({ value, title: METHODS[value], hint: HINTS[value] })), (method) => this.setMethod(method));
    this.methods.replaceChildren(box);
    this.setMethod(methods[0]);
    this.begin();
  }

  text() {
    const known = this.store.models.find(({ name }) => name === this.chosen.name);
    this.words = element("textarea", { id: "search-text", rows: 3, spellcheck: "false", dir: "auto" });
    const { inspection } = this.store;
    const last = inspection?.model === this.chosen.name ? inspection.inputs?.text : null;
    this.words.value = last ?? known?.examples?.[0] ?? "";
    this.words.addEventListener("input", () => {
      this.touched = true;
    });
    return [labelled("Text", this.words)];
  }

  audio() {
    this.words = null;
    const picker = element("input", { type: "file", id: "search-file", accept: "audio/*,.wav,.flac,.ogg" });
    picker.addEventListener("change", () => {
      this.touched = picker.files.length > 0;
      this.inputs = this.touched ? { audio: picker.files[0] } : null;
      this.take(this.store.inspection);
    });
    this.take(this.store.inspection);
    const example = element("button", { type: "button", class: "example", on: { click: () => this.example() } }, "Six spoken digits");
    const hint = element("p", { class: "hint" }, "Without a file: the last recording of the Attention tab.");
    return [labelled("Recording", picker), example, hint];
  }

  /** Search with the example recording. */
  async example() {
    const answer = await fetch(new URL("./digits.wav", import.meta.url));
    if (!answer.ok) return this.fail(new Error("The example could not be fetched."));
    this.touched = true;
    this.inputs = { audio: await answer.blob() };
    this.ask();
  }

  /** Show the settings of a search method. */
  setMethod(method) {
    this.method = method;
    press(this.methods.firstElementChild, method);
    const written = this.chosen.task === "language_modeling";
    const frames = this.chosen.input === "audio";
    const names = Object.keys(NUMBERS).filter((name) => NUMBERS[name][1].includes(method) && (name !== "max_new_tokens" || written) && !(frames && name !== "beam_size"));
    this.fields = names.map((name) => {
      const [label, , min, max, step] = NUMBERS[name];
      const control = element("input", { type: "number", name, min, max, step });
      control.value = String(this.fields?.find((one) => one.name === name)?.control.value ?? this.defaults[name]);
      return { name, control, element: labelled(label, control) };
    });
    this.numbers.replaceChildren(...this.fields.map((one) => one.element));
  }

  submit(event) {
    event.preventDefault();
    this.ask();
  }

  async ask() {
    const inputs = this.words ? { text: this.words.value } : this.inputs;
    if (!inputs) return this.fail(new Error("Choose a recording first."));
    const search = { method: this.method };
    for (const { name, control } of this.fields) if (control.value !== "") search[name] = Number(control.value);
    const turn = ++this.turn;
    this.asked = true;
    this.fail(null);
    this.go.textContent = "Searching…";
    try {
      const shown = await this.fetch(this.chosen.name, inputs, search);
      if (turn === this.turn) this.showSearch(shown);
    } catch (error) {
      if (turn === this.turn) this.clear(error);
    } finally {
      if (turn === this.turn) this.go.textContent = "Search";
    }
  }

  /** A text is sent as JSON, a file as a form. */
  async fetch(model, inputs, search) {
    if (inputs.inspection) return this.store.post("/explore/search", { model, inspection: inputs.inspection, search });
    if (!inputs.audio) return this.store.post("/explore/search", { model, inputs, search });
    const form = new FormData();
    form.append("model", model);
    form.append("search", JSON.stringify(search));
    form.append("file", inputs.audio, inputs.audio.name ?? "audio");
    return (await ask("/explore/search", { method: "POST", body: form })).json();
  }

  fail(error) {
    this.error.hidden = !error;
    this.error.textContent = error?.message ?? "";
  }

  /** Show no search: the last one does not belong to what was asked. */
  clear(error) {
    this.pause();
    this.stage = null;
    this.bar.hidden = true;
    this.board.replaceChildren(nothing());
    this.fail(error);
  }

  /** Show a new search from its first step. */
  showSearch(shown) {
    this.pause();
    const Stage = shown.kind === "ctc" ? SearchLattice : SearchTree;
    this.pace = shown.kind === "ctc" ? FRAME_PACE : PACE;
    this.stage = new Stage(shown, (at) => this.show(at));
    this.board.replaceChildren(this.stage.element);
    this.slider.max = String(shown.steps.length - 1);
    this.bar.hidden = false;
    this.show(0);
  }

  show(at) {
    if (!this.stage) return;
    const last = this.stage.length - 1;
    this.at = Math.max(0, Math.min(last, at));
    this.slider.value = String(this.at);
    this.back.disabled = this.at === 0;
    this.forward.disabled = this.at === last;
    this.says.textContent = this.stage.show(this.at);
  }

  move(step) {
    this.pause();
    this.show(this.at + step);
  }

  toggle() {
    if (this.clock) return this.pause();
    if (this.at === this.stage.length - 1) this.show(0);
    this.play.textContent = "Pause";
    this.clock = setInterval(() => {
      if (this.at === this.stage.length - 1) this.pause();
      else this.show(this.at + 1);
    }, this.pace);
  }

  pause() {
    clearInterval(this.clock);
    this.clock = null;
    this.play.textContent = "Play";
  }

  key(event) {
    if (!this.stage || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("select, input")) return;
    const acts = {
      ArrowRight: () => this.move(1),
      ArrowLeft: () => this.move(-1),
      ArrowDown: () => this.stage.choose(1),
      ArrowUp: () => this.stage.choose(-1),
      Home: () => this.move(-this.at),
      End: () => this.move(this.stage.length),
      " ": () => this.toggle(),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }
}

function nothing() {
  return element("p", { class: "hint" }, "Run a search and step through it.");
}

function labelled(title, control) {
  return element("label", { class: "field" }, element("span", { class: "label" }, title), control);
}
