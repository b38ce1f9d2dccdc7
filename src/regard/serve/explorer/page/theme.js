/**
 * Light or dark: what the system likes, until the switch is pressed; the choice is remembered where that is allowed.
 */

import { recall, remember } from "./memory.js";

const KEY = "regard-theme";

/** Make a button the switch; everyone who draws hears "theme". */
export function mountTheme(button, store) {
  const liked = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = ["dark", "light"].find((theme) => theme === recall(KEY));
  const show = () => {
    const theme = chosen ?? (liked.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", theme === "dark" ? "Use light colours" : "Use dark colours");
    store.tell("theme");
  };
  button.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remember(KEY, chosen);
    show();
  });
  liked.addEventListener("change", show);
  show();
}
