/**
 * The page: makes the store, mounts the panes, and shows the one that the address names (#attention, #search, #lab).
 *
 * Optional panes are modules with `mount(element, store)`; the tab of a missing one stays hidden.
 */

import { mount as mountComparison } from "./comparison.js";
import { mount as mountInput } from "./input.js";
import { mount as mountTokens } from "./token_view.js";
import { mount as mountMaps } from "./maps.js";
import * as remote from "./remote.js";
import { Store } from "./store.js";
import { mountTheme } from "./theme.js";
import { mount as mountTour } from "./tour.js";

const store = new Store(remote);
const find = (id) => document.getElementById(id);

mountTheme(find("theme"), store);
mountInput(find("input"), store);
mountTokens(find("tokens"), store);
mountMaps(find("maps"), store);
mountComparison(find("comparison"), store);
mountTour(find("tour"), store);
for (const [module, place] of [["./interventions.js", "interventions"], ["./export.js", "export"], ["./request.js", "request"]]) mountOptional(module, place);
for (const [module, place] of [["./search_view.js", "search"], ["./lab.js", "lab"]]) mountOptional(module, place);

globalThis.regard = { store }; // for debugging
store.on("inspection", () => (document.documentElement.dataset.inspection = store.inspection?.id ?? "")); // for tests
store.on("inspection", () => find("pane-attention").classList.toggle("without-maps", store.inspection?.maps.length === 0));

store.on("model", nameModel);
window.addEventListener("popstate", () => {
  const name = new URLSearchParams(location.search).get("model");
  if (name && name !== store.model?.name) store.choose(name);
});
window.addEventListener("hashchange", route);
route();
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.defaultPrevented) store.select({ query: null, key: null });
});
store.open(new URLSearchParams(location.search).get("model"));

/** The address names the chosen model: a reload keeps it, and the back button returns to the one before. */
function nameModel() {
  const address = new URL(location.href);
  const before = address.searchParams.get("model");
  if (!store.model || before === store.model.name) return;
  address.searchParams.set("model", store.model.name);
  if (store.models.some(({ name }) => name === before)) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

/** Mount an optional pane; if its module is missing, it and its tab stay hidden. */
async function mountOptional(module, place) {
  const { mount } = await import(module).catch(() => ({}));
  if (!mount) return;
  mount(find(place), store);
  document.querySelectorAll(`[data-needs="${place}"]`).forEach((waiting) => waiting.removeAttribute("hidden"));
  route();
}

/** Show the pane named by the URL fragment. */
function route() {
  const tabs = [...document.querySelectorAll("nav a")];
  const chosen = tabs.find((tab) => tab.hash === location.hash && !tab.hidden) ?? tabs[0];
  for (const tab of tabs) {
    if (tab === chosen) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
    find(`pane-${tab.hash.slice(1)}`).hidden = tab !== chosen;
  }
}
