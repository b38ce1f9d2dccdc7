/**
 * A tour of three steps: a card beside the part of the page that it is about, which takes a ring.
 *
 * It begins by itself once, after the first answer, without taking the focus; the button at the top begins it again. Keys:
 * Esc ends it, and with the focus in the card left and right go back and on. That it was seen is remembered here only.
 */

import { element } from "./element.js";
import { recall, remember } from "./memory.js";

const KEY = "regard-tour";
const GAP = 14; // pixels between the card and what it is about
const WIDE = 320;
const STEPS = [
  { at: "#tokens", title: "Point at a word", says: "Below, in blue, is what it attends to; above, in orange, what attends to it. A click keeps it. The tabs are other views of the same weights." },
  { at: "#maps", title: "Choose a layer and a head", says: "Every square is one head. A click shows it large. A right click, a long press or X switches it off: the answers with and without it then stand side by side." },
  { at: "#input", title: "Try your own", says: "Choose a model, type a sentence or drop a file, and run it. Search shows how the answer was found, Lab how attention is computed." },
];

/** Make a button begin the tour, and begin it where it has not been seen. */
export function mount(button, store) {
  const tour = new Tour(button);
  button.addEventListener("click", () => tour.go(0, true));
  if (recall(KEY)) return;
  const stop = store.on("inspection", () => {
    if (!store.inspection?.maps.length || location.hash.length > 1) return;
    stop();
    tour.go(0, false);
  });
}

class Tour {
  constructor(button) {
    this.button = button;
    this.step = null;
    this.title = element("h2", { id: "tour-title" });
    this.says = element("p", { id: "tour-says" });
    this.count = element("span", { class: "hint" });
    const press = (name, title, act, look = "quiet") => element("button", { type: "button", class: look, "data-tour": name, on: { click: act } }, title);
    this.skip = press("skip", "Skip", () => this.end());
    this.back = press("back", "Back", () => this.go(this.step - 1, true));
    this.next = press("next", "Next", () => this.on(), "primary");
    this.card = element("section", { class: "tour-card", role: "dialog", "aria-labelledby": "tour-title", "aria-describedby": "tour-says", hidden: true },
      this.title, this.says, element("div", { class: "tour-buttons" }, this.count, this.skip, this.back, this.next));
    document.querySelector("header.top").after(this.card); // the next stop of Tab after the header
    this.card.addEventListener("keydown", (event) => {
      if (event.key === "ArrowRight") this.on();
      else if (event.key === "ArrowLeft" && this.step > 0) this.go(this.step - 1, true);
      else return;
      event.preventDefault();
    });
    window.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.step === null) return;
      event.preventDefault(); // the page would let the pinned token go
      this.end();
    }, true);
    for (const event of ["resize", "hashchange"]) window.addEventListener(event, () => this.place());
    window.addEventListener("scroll", () => this.place(), { passive: true });
  }

  on() {
    if (this.step + 1 < STEPS.length) this.go(this.step + 1, true);
    else this.end();
  }

  go(step, focus) {
    this.step = step;
    if (!["", "#attention"].includes(location.hash)) location.hash = "#attention";
    const { at, title, says } = STEPS[step];
    this.title.textContent = title;
    this.says.textContent = says;
    this.count.textContent = `${step + 1} of ${STEPS.length}`;
    this.back.hidden = step === 0;
    this.skip.hidden = step === STEPS.length - 1;
    this.next.textContent = step === STEPS.length - 1 ? "Done" : "Next";
    this.ring(document.querySelector(at));
    this.card.hidden = false;
    const { top } = this.about.getBoundingClientRect();
    if (top < 0 || top > window.innerHeight / 2) this.about.scrollIntoView({ block: "start" });
    this.place();
    if (focus) this.next.focus({ preventScroll: true });
  }

  end() {
    remember(KEY, "seen");
    const focused = this.card.contains(document.activeElement);
    this.step = null;
    this.card.hidden = true;
    this.ring(null);
    if (focused) this.button.focus();
  }

  ring(about) {
    this.about?.classList.remove("tour-at");
    this.about = about;
    this.about?.classList.add("tour-at");
  }

  /** Beside what the card is about, where there is room; else at the lower edge of the window. */
  place() {
    if (this.step === null) return;
    const box = this.about.getBoundingClientRect();
    const right = box.right + GAP + WIDE <= window.innerWidth;
    const left = box.left - GAP - WIDE >= 0;
    this.card.classList.toggle("below", !right && !left);
    this.card.style.left = right ? `${box.right + GAP}px` : left ? `${box.left - GAP - WIDE}px` : "";
    this.card.style.top = right || left ? `${Math.max(72, Math.min(box.top + 24, window.innerHeight - this.card.offsetHeight - GAP))}px` : "";
  }
}
