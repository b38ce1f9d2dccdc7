/**
 * What this browser remembers of the page, for this address only: no cookie, so nothing of it is sent to anybody.
 */

/** The value of a key; null where there is none, or where the browser forbids it. */
export function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** Remember a value, where that is allowed. */
export function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // the browser forbids it: the choice is forgotten, nothing more
  }
}
