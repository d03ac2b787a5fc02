// Requests to the service.

const API = "api/v1/";
const TOKEN = "nnhal-token";
const TIMEOUT_MS = 10000;

/** A request that failed. `status` is 0 if there was no response. */
export class ServiceError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

let token = "";
try {
  token = sessionStorage.getItem(TOKEN) ?? "";
} catch {
  // the browser forbids storage: the token lasts as long as the page
}

export function hasToken() {
  return token !== "";
}

/** Use a token for all requests, until the tab is closed; "" for none. */
export function setToken(value) {
  token = value;
  try {
    if (value) sessionStorage.setItem(TOKEN, value);
    else sessionStorage.removeItem(TOKEN);
  } catch {
    // see above
  }
}

async function request(path, options) {
  let response;
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    response = await fetch(API + path, { ...options, headers, signal, credentials: "same-origin" });
  } catch (error) {
    throw new ServiceError(error.name === "TimeoutError" ? "The service did not answer in time." : "No connection.");
  }
  let body = null;
  try {
    body = await response.json();
  } catch {
    throw new ServiceError(`The response is not JSON (status ${response.status}).`, response.status);
  }
  if (!response.ok) throw new ServiceError(body.error ?? `Status ${response.status}.`, response.status);
  return body;
}

/** Return a resource of the API. */
export function read(name) {
  return request(name, { method: "GET" });
}

/** Carry out an action, and return its result in words. */
export async function act(name, body = {}) {
  const headers = { "content-type": "application/json", "x-nnhal-request": "1" };
  const response = await request(`actions/${name}`, { method: "POST", headers, body: JSON.stringify(body) });
  return response.result;
}
