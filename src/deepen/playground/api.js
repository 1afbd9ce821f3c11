// The only file that talks to the server.

const KEY = "deepen-api-key";

/** What the server refused, as a sentence to show. */
class ServerError extends Error {
  constructor(message, type) {
    super(message);
    this.type = type;
  }
}

// Kept for this browser tab only.
export const keepKey = (key) => sessionStorage.setItem(KEY, key);

export const listModels = () => call("/v1/models");

export const readGrid = (name) => call(`/v1/models/${encodeURIComponent(name)}/grid`);

/** Answers to questions, in order, each with its trace. */
export async function ask({ model, questions, steps, halt, signal }) {
  const body = { model, questions, steps, halt, trace: true };
  return (await call("/v1/answer", { method: "POST", body: JSON.stringify(body), signal })).answers;
}

/** As many of the questions, from the first on, as one request may hold. */
export function thatFit(questions, limits) {
  const bytes = new TextEncoder();
  let room = limits.body_bytes - 1_000; // the rest of the request
  const fitting = questions.slice(0, limits.questions).findIndex((question) => {
    room -= bytes.encode(JSON.stringify(question)).length + 1;
    return room < 0;
  });
  return questions.slice(0, fitting < 0 ? limits.questions : fitting);
}

async function call(address, options = {}) {
  const headers = { "Content-Type": "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(address, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached. Is it still running?", "unreachable");
  }
  const body = await response.json().catch(() => null);
  options.signal?.throwIfAborted(); // which may be why there is no body
  if (response.ok && body) return body;
  throw explain(response, body?.error);
}

function explain(response, error) {
  let message = error?.message ?? `The server answered with status ${response.status}.`;
  message = message.charAt(0).toUpperCase() + message.slice(1);
  if (!/[.!?]$/.test(message)) message += ".";
  if (response.status === 401) return new ServerError(message, "key");
  if (response.status === 429) message += ` ${tryAgain(response.headers.get("Retry-After"))}`;
  return new ServerError(message, error?.type ?? "internal");
}

/** Retry-After is a number of seconds or a date. */
function tryAgain(after) {
  const seconds = /^\d+$/.test(after ?? "") ? Number(after) : Math.ceil((Date.parse(after) - Date.now()) / 1000);
  if (!(seconds > 0)) return "Try again in a moment.";
  return `Try again in ${seconds} second${seconds === 1 ? "" : "s"}.`;
}
