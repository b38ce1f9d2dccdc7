/**
 * Entry point of an exported page: shows the inspection stored in the file. Panes that need a model are left out.
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
const { about } = embedded.content();

mountTheme(find("theme"), store);
mountTokens(find("tokens"), store);
mountMaps(find("maps"), store);
mountExport(find("export"), store);
find("answer").hidden = !answer(find("output"), { ...about, note: "", warning: "" }, () => embedded.picture());
showInputs();
showReduced();
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") store.select({ query: null, key: null });
});
store.show(about);

/** Show the inputs and the model. */
function showInputs() {
  const words = Object.entries(about.inputs ?? {}).filter(([, value]) => ["string", "number"].includes(typeof value));
  const facts = words.map(([name, value]) => element("p", { class: "fact" }, element("span", {}, name), element("b", { dir: "auto" }, String(value))));
  const title = element("h2", { class: "pane-title" }, about.model, element("span", { class: "aside" }, about.task.replaceAll("_", " ")));
  const note = about.note ? element("p", { class: "hint note" }, about.note) : null;
  const warning = about.warning ? element("p", { class: "hint note warning" }, about.warning) : null;
  find("inputs").replaceChildren(...[title, warning, note, ...facts].filter(Boolean));
}

/** Report maps that were reduced to fit into the file. */
function showReduced() {
  const less = about.maps.filter(({ name, n, m }) => {
    const [rows, columns] = embedded.content().maps[name].raw.cells;
    return rows < n || columns < m;
  });
  find("coarse").hidden = !less.length;
  find("coarse").textContent = `${less.length} of ${about.maps.length} maps are stored at a lower resolution: rows are sampled, columns are max-pooled.`;
}
