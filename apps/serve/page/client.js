// Requests to the server.

export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, key, options = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...options.headers, ...headers } });
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new ServerError(0, "The server does not answer.");
  }
  if (response.ok) return response;
  const text = await response.text();
  throw new ServerError(response.status, words(text) ?? `The server answered with status ${response.status}.`);
}

// The error message of a response.
function words(text) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return undefined;
  }
}

// The server's models; `status` and `freeBytes` only if there may be several.
export async function models(key) {
  const list = await (await ask("/v1/models", key)).json();
  const all = list.data.map(({ id, max_model_len, status }) => ({ name: id, context: max_model_len, status }));
  return { all, freeBytes: list.free_memory_bytes };
}

// The metrics needed for the bandwidth at which weights are read. A server of several models labels them.
export async function figures(key, model) {
  const lines = (await (await ask("/metrics", key)).text()).split("\n");
  const of = (name) => {
    const starts = [`pinion_${name} `, `pinion_${name}{model=${JSON.stringify(model)}} `];
    return Number(lines.find((line) => starts.some((start) => line.startsWith(start)))?.split(" ").at(-1));
  };
  return { bytes: of("weight_bytes_total"), seconds: of("busy_seconds_total"), roof: of("roof_bytes_per_second") };
}

// Share of the memory bandwidth used between two readings; NaN if unknown.
export function roofShare(before, after) {
  const share = (after.bytes - before.bytes) / (after.seconds - before.seconds) / after.roof;
  return share > 0 && share < Infinity ? share : NaN;
}

// Yields the data of server-sent events.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ")) yield part.slice("data: ".length);
    }
  }
}

// Requests the next message; calls onChunk for each chunk. Returns the answer's seed.
export async function complete(request, key, signal, onChunk) {
  const response = await ask("/v1/chat/completions", key, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  const seed = response.headers.get("X-Pinion-Seed");
  try {
    for await (const data of events(response.body)) {
      if (data === "[DONE]") return seed;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ServerError(500, chunk.error.message);
      onChunk(chunk);
    }
  } catch (failure) {
    if (failure.name === "AbortError" || failure instanceof ServerError) throw failure;
  }
  throw new ServerError(0, "The server broke off in the middle of the answer.");
}
