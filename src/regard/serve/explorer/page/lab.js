/**
 * The mechanism lab: self-attention in six steps with numbers to change, and every mechanism, mask, score function and
 * position of the registries on your own tokens. No model is needed; the formulas come from the source files.
 */

import { Aligners, Gallery, Mechanisms, Positions } from "./lab_panels.js";
import { choice, element, press } from "./element.js";
import { ask } from "./remote.js";
import { SixSteps } from "./six_steps.js";
import { loadStylesheet } from "./stylesheet.js";

const TABS = [
  { value: "steps", title: "Six steps", make: SixSteps },
  { value: "mechanisms", title: "Mechanisms and masks", make: Mechanisms },
  { value: "gallery", title: "All mechanisms", make: Gallery },
  { value: "aligners", title: "Scores and aligners", make: Aligners },
  { value: "positions", title: "Positions", make: Positions },
];

/** Build the pane when it is first opened. */
export function mount(host, store) {
  loadStylesheet("gallery.css");
  loadStylesheet("lab.css");
  const open = () => {
    if (location.hash !== "#lab" || host.dataset.open) return;
    host.dataset.open = "yes";
    new Lab(host, store).begin();
  };
  window.addEventListener("hashchange", open);
  open();
}

class Lab {
  constructor(host, store) {
    Object.assign(this, { store, panels: new Map() });
    this.tabs = choice("Part of the lab", TABS, (value) => this.enter(value));
    this.panel = element("div", { class: "lab-panel" });
    this.error = element("p", { class: "refused", role: "alert", hidden: true });
    host.append(element("div", { class: "lab-head" }, element("h2", { class: "pane-title" }, "Mechanism lab"), this.tabs), this.error, this.panel);
    store.on("theme", () => this.panels.forEach((panel) => panel.repaint()));
  }

  async begin(value = TABS[0].value) {
    try {
      this.contents = await (await ask("/explore/lab")).json();
      this.fail(null);
      this.enter(value);
    } catch (error) {
      this.fail(error);
    }
  }

  enter(value) {
    if (!this.contents) return this.begin(value); // the server did not answer: try again
    press(this.tabs, value);
    if (!this.panels.has(value)) this.panels.set(value, new (TABS.find((panel) => panel.value === value).make)(this));
    this.panel.replaceChildren(this.panels.get(value).element);
  }

  /** Open the panel of one mechanism with this spec. */
  openMechanism(spec) {
    this.enter("mechanisms");
    const panel = this.panels.get("mechanisms");
    panel.mechanism.set(spec);
    panel.change();
  }

  /** Run an experiment; on failure show the error and return null. */
  async ask(body) {
    try {
      const found = await this.store.post("/explore/lab", body);
      this.error.hidden = true;
      return found;
    } catch (error) {
      this.fail(error);
      return null;
    }
  }

  fail(error) {
    this.error.textContent = error?.message ?? "";
    this.error.hidden = !error;
  }
}
