/**
 * The mechanism lab: self-attention in six steps with numbers to change, and every mechanism, mask, score function and
 * position of the tables on one's own tokens. Nothing here needs a model; formulas are those of the files that compute.
 */

import { Aligners, Mechanisms, Positions } from "./bench.js";
import { choice, element, press } from "./element.js";
import { SixSteps } from "./sixsteps.js";
import { styled } from "./styled.js";

const ROOMS = [
  { value: "steps", title: "Six steps", make: SixSteps },
  { value: "mechanisms", title: "Mechanisms and masks", make: Mechanisms },
  { value: "aligners", title: "Scores and aligners", make: Aligners },
  { value: "positions", title: "Positions", make: Positions },
];

/** Build the pane, once it is wanted. */
export function mount(host, store) {
  styled("lab.css");
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
    Object.assign(this, { store, rooms: new Map() });
    this.tabs = choice("Part of the lab", ROOMS, (value) => this.enter(value));
    this.room = element("div", { class: "lab-room" });
    this.error = element("p", { class: "refused", role: "alert", hidden: true });
    host.append(element("div", { class: "lab-head" }, element("h2", { class: "pane-title" }, "Mechanism lab"), this.tabs), this.error, this.room);
    store.on("theme", () => this.rooms.forEach((room) => room.repaint()));
  }

  async begin() {
    try {
      const answer = await fetch("/explore/lab");
      if (!answer.ok) throw new Error("The lab is not there.");
      this.contents = await answer.json();
      this.enter(ROOMS[0].value);
    } catch (error) {
      this.fail(error);
    }
  }

  enter(value) {
    press(this.tabs, value);
    if (!this.rooms.has(value)) this.rooms.set(value, new (ROOMS.find((room) => room.value === value).make)(this));
    this.room.replaceChildren(this.rooms.get(value).element);
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
