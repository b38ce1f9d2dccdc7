/**
 * The request that gives the shown answer without this page: a line for curl, to copy.
 */

import { element } from "./element.js";

/** Build the pane. */
export function mount(host, store) {
  const line = element("pre", { class: "curl", tabindex: "0", "aria-label": "Command" });
  const said = element("span", { class: "hint", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line.textContent);
      said.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(line);
      said.textContent = "Selected: copy it with Ctrl+C.";
    }
  };
  const button = element("button", { type: "button", class: "quiet", id: "copy-curl", on: { click: copy } }, "Copy");
  const docs = element("a", { href: "/docs" }, "All requests");
  const box = element("details", { class: "more" }, element("summary", {}, "As a request"), element("div", {}, line, element("p", { class: "curl-buttons" }, button, docs, said)));
  host.append(box);
  const show = () => {
    box.hidden = !store.inspection || !store.inputs;
    said.textContent = "";
    if (!box.hidden) line.textContent = curl(location.origin, store.model, store.inputs);
  };
  store.on("inspection", show);
  show();
}

/** The command that runs a model on inputs; what the page only asks an inspection for is left out. */
export function curl(origin, model, inputs) {
  const names = Object.keys(model.inputs);
  const given = Object.entries(inputs).filter(([, value]) => !(value instanceof Blob));
  const values = given.filter(([name]) => names.includes(name));
  const options = Object.fromEntries(given.filter(([name]) => model.run_options?.includes(name) && !names.includes(name)));
  const words = ["curl", `${origin}/v1/run/${encodeURIComponent(model.name)}`];
  if (model.needs_token) words.push("-H", "Authorization: Bearer TOKEN");
  const file = Object.entries(inputs).find(([, value]) => value instanceof Blob);
  if (file) {
    words.push("-F", `${file[0]}=@"${(file[1].name ?? file[0]).replace(/["\\]/g, "\\$&")}"`);
    for (const [name, value] of values) words.push("-F", `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
    if (Object.keys(options).length) words.push("-F", `options=${JSON.stringify(options)}`);
  } else {
    const item = names.length === 1 ? values[0]?.[1] : Object.fromEntries(values);
    const body = { inputs: [item], ...(Object.keys(options).length ? { options } : {}) };
    words.push("-H", "Content-Type: application/json", "-d", JSON.stringify(body));
  }
  return words.map(quoted).join(" ");
}

/** A word of a POSIX shell. */
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
