/**
 * The mechanism lab: self-attention in six steps with numbers to change, and every mechanism, mask, score function and
 * position of the tables on one's own tokens. Nothing here needs a model; formulas are those of the files that compute.
 */

import { Aligners, Mechanisms, Positions } from "./lab_panels.js";
import { choice, element, press } from "./element.js";
import { SixSteps } from "./six_steps.js";
import { loadStylesheet } from "./stylesheet.js";

const TABS = [
  { value: "steps", title: "Six steps", make: SixSteps },
  { value: "mechanisms", title: "Mechanisms and masks", make: Mechanisms },
  { value: "aligners", title: "Scores and aligners", make: Aligners },
  { value: "positions", title: "Positions", make: Positions },
];

/** Build the pane, once it is wanted. */
export function mount(host, store) {
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

  async begin() {
    try {
      const answer = await fetch("/explore/lab");
      if (!answer.ok) throw new Error("The lab is not there.");
      this.contents = await answer.json();
      this.enter(TABS[0].value);
    } catch (error) {
      this.fail(error);
    }
  }

  enter(value) {
    press(this.tabs, value);
    if (!this.panels.has(value)) this.panels.set(value, new (TABS.find((panel) => panel.value === value).make)(this));
    this.panel.replaceChildren(this.panels.get(value).element);
  }

  /** Ask for an experiment; null where it cannot be done, and why is shown. */
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
    this.error.textContent = error.message;
    this.error.hidden = false;
  }
}
