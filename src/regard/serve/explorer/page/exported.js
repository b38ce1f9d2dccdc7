/**
 * An exported page: the inspection that the file holds, in the panes of the served one. What needs a model is not here.
 */

import { element } from "./element.js";
import { mount as mountExport } from "./export.js";
import * as embedded from "./embedded.js";
import { mount as mountTokens } from "./token_view.js";
import { mount as mountMaps } from "./maps.js";
import { answer } from "./output.js";
import { Store } from "./store.js";
import { mountTheme } from "./theme.js";

const store = new Store(embedded);
const find = (id) => document.getElementById(id);
const { about } = embedded.held();

mountTheme(find("theme"), store);
mountTokens(find("tokens"), store);
mountMaps(find("maps"), store);
mountExport(find("export"), store);
find("answer").hidden = !answer(find("output"), about.output ?? {});
given();
coarse();
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") store.select({ query: null, key: null });
});
store.show(about);

/** What was read, and by which model. */
function given() {
  const words = Object.entries(about.given ?? {}).filter(([, value]) => ["string", "number"].includes(typeof value));
  const facts = words.map(([name, value]) => element("p", { class: "fact" }, element("span", {}, name), element("b", { dir: "auto" }, String(value))));
  const title = element("h2", { class: "pane-title" }, about.model, element("span", { class: "aside" }, about.task.replaceAll("_", " ")));
  const note = about.note ? element("p", { class: "hint note" }, about.note) : null;
  find("given").replaceChildren(...[title, note, ...facts].filter(Boolean));
}

/** Say so where maps were made smaller to fit. */
function coarse() {
  const less = about.maps.filter(({ name, n, m }) => {
    const [rows, columns] = embedded.held().maps[name].raw.cells;
    return rows < n || columns < m;
  });
  find("coarse").hidden = !less.length;
  find("coarse").textContent = `${less.length} of ${about.maps.length} maps are kept with fewer rows and columns than they have: of several rows one is shown, of several columns the largest.`;
}
