/**
 * Stylesheets of panes that not every page has.
 */

import { element } from "./element.js";

/** Bring a stylesheet into the page, once. */
export function loadStylesheet(name) {
  if (document.querySelector(`link[data-style="${name}"]`)) return;
  document.head.append(element("link", { rel: "stylesheet", href: new URL(name, import.meta.url).href, "data-style": name }));
}
