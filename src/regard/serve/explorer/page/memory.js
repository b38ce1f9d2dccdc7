/**
 * What this browser remembers of the page, for this address only: no cookie, so nothing of it is sent to anybody. In `TAB` it is
 * remembered until the tab is closed.
 */

export const TAB = "sessionStorage";

/** The value of a key; null where there is none, or where the browser forbids it. */
export function recall(key, storage = "localStorage") {
  try {
    return globalThis[storage].getItem(key);
  } catch {
    return null;
  }
}

/** Remember a value, where that is allowed. */
export function remember(key, value, storage = "localStorage") {
  try {
    globalThis[storage].setItem(key, value);
  } catch {
    // the browser forbids it: the choice is forgotten, nothing more
  }
}
