/**
 * The model as it is and the model with changes, in the centre of the page: both answers side by side, and the loss of the
 * original answer under both. Changes come from the pane of changes or from the grid of heads; every one is run at once.
 */

import { compareAnswers } from "./compare.js";
import { element } from "./element.js";
import { changeInWords } from "./interventions.js";
import { loadStylesheet } from "./stylesheet.js";

/** Build the pane; it is hidden where nothing is changed. */
export function mount(host, store) {
  loadStylesheet("lab.css");
  store.canChange = true;
  new Comparison(host, store);
}

class Comparison {
  constructor(host, store) {
    Object.assign(this, { host, store, turn: 0 });
    this.list = element("ul", { class: "changes", "aria-label": "Changes" });
    this.error = element("p", { class: "refused", role: "alert", hidden: true });
    this.result = element("div", { class: "beside", "aria-live": "polite" });
    const button = (id, title, act) => element("button", { type: "button", class: "quiet", id, on: { click: act } }, title);
    this.buttons = element("div", { class: "change-buttons" }, button("change-show", "Show its maps", () => this.showMaps()), button("change-back", "Undo all", () => this.undo()));
    host.append(element("div", { class: "bar" }, element("h2", { class: "comparison-title" }, "Original and changed model"), this.buttons), this.list, this.error, this.result);
    store.on("changes", () => this.compare());
    store.on("inspection", () => this.compare());
    this.compare();
  }

  async compare() {
    const { store } = this;
    const { changes, inspection } = store;
    const turn = ++this.turn;
    this.error.hidden = true;
    this.host.hidden = !inspection || !changes.length;
    this.list.replaceChildren(...changes.map((change) => this.item(change)));
    this.buttons.hidden = !changes.length;
    if (this.host.hidden) return this.result.replaceChildren();
    this.result.classList.add("waiting");
    try {
      const found = await store.post("/explore/interventions", { inspection: inspection.id, interventions: changes });
      if (turn === this.turn) this.result.replaceChildren(...compareAnswers(found));
    } catch (error) {
      if (turn !== this.turn) return;
      if (["invalid", "not_found"].includes(error.type)) store.change(changes.slice(0, -1)); // the last one is not possible
      this.fail(error);
    } finally {
      if (turn === this.turn || !store.changes.length) this.result.classList.remove("waiting");
    }
  }

  /** A change in words with a button to remove it. */
  item(change) {
    const said = changeInWords(change, this.store.inspection?.maps);
    const drop = () => this.store.change(this.store.changes.filter((other) => other !== change));
    return element("li", {}, element("span", {}, said), element("button", { type: "button", class: "quiet", "aria-label": `Remove: ${said}`, on: { click: drop } }, "×"));
  }

  /** Run the input again with the changes and show its maps. */
  showMaps() {
    this.store.read(this.store.inputs, this.store.changes);
  }

  undo() {
    const { store } = this;
    const shown = store.inspection?.interventions?.length;
    store.change([]);
    if (shown) store.read(store.inputs, []);
  }

  fail(error) {
    this.host.hidden = false;
    this.error.textContent = error.message;
    this.error.hidden = false;
  }
}
