/**
 * Light or dark: what the system likes, until the switch is pressed; the choice is remembered where that is allowed.
 */

const KEY = "regard-theme";

/** Make a button the switch; everyone who draws hears "theme". */
export function mountTheme(button, store) {
  const liked = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = remembered();
  const show = () => {
    const theme = chosen ?? (liked.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", theme === "dark" ? "Use light colours" : "Use dark colours");
    store.tell("theme");
  };
  button.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remember(chosen);
    show();
  });
  liked.addEventListener("change", show);
  show();
}

function remembered() {
  try {
    const found = localStorage.getItem(KEY);
    return found === "dark" || found === "light" ? found : null;
  } catch {
    return null; // a browser that forbids it forgets the choice, nothing more
  }
}

function remember(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // as above
  }
}
