/**
 * The server as a source of inspections: one function per route.
 *
 * Every failure becomes a `RequestError` with a message to show.
 */

/** A request that failed. */
export class RequestError extends Error {
  constructor(message, { type = "unknown", status = 0, field = null } = {}) {
    super(message);
    this.type = type;
    this.status = status;
    this.field = field;
  }
}

/** The models that can be explored. */
export const models = async () => {
  const body = await (await ask("/explore/models")).json();
  return Array.isArray(body) ? body : body.models;
};

/** Run a model on an input; a file is sent as multipart, everything else as JSON. */
export async function read(model, inputs, interventions = []) {
  const entries = Object.entries(inputs);
  const file = entries.find(([, value]) => value instanceof Blob);
  if (!file) return post("/explore/inspections", { model, inputs, interventions });
  const form = new FormData();
  form.append("model", model);
  form.append("inputs", JSON.stringify(Object.fromEntries(entries.filter(([, value]) => !(value instanceof Blob)))));
  form.append("interventions", JSON.stringify(interventions));
  form.append("file", file[1], file[1].name ?? file[0]);
  return (await ask("/explore/inspections", { method: "POST", body: form })).json();
}

/** Thumbnails of all heads of a map, and the largest weight of each. */
export async function sample(id, map, size) {
  const answer = await ask(`/explore/inspections/${id}/sample?${new URLSearchParams({ map, size })}`);
  return { bytes: new Uint8Array(await answer.arrayBuffer()), scale: JSON.parse(answer.headers.get("X-Scale") ?? "[]") };
}

/** Part of one head's map, at most `size` cells to a side, as bytes; their `peak` is the weight that 255 is. */
export async function tile(id, map, head, rows, columns, size, view = "raw") {
  const query = new URLSearchParams({ map, head, rows: rows.join(":"), columns: columns.join(":"), size, view });
  const answer = await ask(`/explore/inspections/${id}/tile?${query}`);
  const bytes = new Uint8Array(await answer.arrayBuffer());
  return Object.assign(bytes, { peak: JSON.parse(answer.headers.get("X-Scale") ?? "1") });
}

/** The row of one query. */
export const row = (id, map, head, query, view) => numbers(id, "row", { map, head, query, view });

/** The column of one key. */
export const column = (id, map, head, key, view) => numbers(id, "column", { map, head, key, view });

/** All layers multiplied: which input cells reach a token. */
export const rollout = (id, query) => numbers(id, "rollout", { query });

/** Gradient times weights, through all layers: which input cells the output depends on. */
export const relevance = (id, target) => numbers(id, "relevance", { target });

/** The picture that was read, or the spectrogram of what was heard. */
export const picture = async (id, what = "picture") => (await ask(`/explore/inspections/${id}/${what}`)).blob();

/** Post JSON, get JSON. */
export async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/** Floats, little endian on the wire whatever the machine is. */
async function numbers(id, what, parameters) {
  const buffer = await (await ask(`/explore/inspections/${id}/${what}?${new URLSearchParams(parameters)}`)).arrayBuffer();
  const view = new DataView(buffer);
  return Float32Array.from({ length: buffer.byteLength / 4 }, (_, k) => view.getFloat32(4 * k, true));
}

/** The answer to a request; one that failed is an error with a sentence. */
export async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new RequestError("The server cannot be reached. Is it still running?", { type: "unreachable" });
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  const { type, message, field } = body.error ?? {};
  const sentence = message ?? `Request failed with status ${answer.status}.`;
  throw new RequestError(sentence, { type, field, status: answer.status });
}
