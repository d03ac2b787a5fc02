// The page: its views, and the loop that asks the service.

import { configureActions } from "./actions.js";
import { askToken } from "./dialog.js";
import { empty, fill, h, pill } from "./dom.js";
import { compact } from "./format.js";
import { hasToken, read, ServiceError, setToken } from "./service.js";
import { backends } from "./views/backends.js";
import { cache } from "./views/cache.js";
import { device } from "./views/device.js";
import { members } from "./views/members.js";
import { models } from "./views/models.js";
import { overview } from "./views/overview.js";
import { quarantine } from "./views/quarantine.js";
import { sessions } from "./views/sessions.js";
import { settings } from "./views/settings.js";
import { warnings } from "./views/warnings.js";
import { workers } from "./views/workers.js";

const PERIOD_MS = 2000;
const LONGEST_PAUSE_MS = 15000;
const HISTORY_S = 900;
const VIEWS = [overview, device, backends, models, sessions, workers, members, cache, quarantine, warnings, settings];

const $ = (id) => document.getElementById(id);
const page = { view: null, shown: null, once: {}, caller: null, history: null, failures: 0, timer: 0, round: 0, isAsking: false };

function chosen() {
  const id = location.hash.replace(/^#\/?/, "").split("/")[0];
  return VIEWS.find((view) => view.id === id) ?? overview;
}

/** Show the view that the address names. */
function route() {
  const view = chosen();
  if (page.view !== view) {
    page.view = view;
    close();
    fill($("content"), h("h1", {}, view.title), h("p.loading", { role: "status" }, "Loading…"));
    document.title = `${view.title} · nnhal`;
    for (const link of $("views").querySelectorAll("a")) {
      if (link.dataset.view === view.id) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
  refresh();
}

function close() {
  page.shown?.destroy?.();
  page.shown = null;
  page.once = {};
}

/** Ask now, and then again and again. An answer to an earlier round is dropped. */
async function refresh() {
  clearTimeout(page.timer);
  page.round += 1;
  const round = page.round;
  const { view } = page;
  page.isAsking = true;
  try {
    page.caller ??= await read("caller");
    if (!page.caller.may_observe) throw new ServiceError(refusal(page.caller), 403);
    const once = (view.once ?? []).filter((name) => !(name in page.once)); // what does not change while it is shown
    const names = ["service", ...view.resources, ...once];
    const since = page.history?.at.at(-1) ?? 0;
    const paths = names.map((name) => (name === "history" ? `history?since=${since}` : name));
    const answers = await Promise.all(paths.map(read));
    if (round !== page.round) return;
    const data = Object.fromEntries(names.map((name, index) => [name, answers[index]]));
    for (const name of once) page.once[name] = data[name];
    Object.assign(data, page.once);
    if (data.history) data.history = page.history = extended(page.history, data.history);
    configureActions(page.caller.may_administer, refresh);
    show(view, data);
    page.failures = 0;
  } catch (error) {
    if (round !== page.round) return;
    fail(error);
  }
  page.isAsking = false;
  const pause = Math.min(PERIOD_MS * 2 ** Math.max(page.failures - 1, 0), LONGEST_PAUSE_MS);
  if (!document.hidden) page.timer = setTimeout(refresh, pause);
}

/** Return a history with later points, without those that are too old. */
function extended(old, more) {
  if (!old) return more;
  const first = Math.max(old.at.findIndex((at) => at > (more.at.at(-1) ?? old.at.at(-1)) - HISTORY_S), 0);
  return Object.fromEntries(Object.keys(more).map((key) => [key, [...old[key].slice(first), ...more[key]]]));
}

function refusal(caller) {
  return hasToken() ? `${caller.identity} has no right to observe it.` : "Sign in as an identity that may observe it.";
}

function show(view, data) {
  if (!page.shown) {
    page.shown = view.create();
    $("content").replaceChildren(h("h1", {}, view.title), page.shown.element);
  }
  document.body.classList.remove("stale");
  page.shown.update(data);
  fill($("state"), pill(data.service.state), h("span.version", {}, `nnhal ${data.service.version}`));
  fill($("caller"), page.caller.may_administer ? `${page.caller.identity}, administrator` : `${page.caller.identity}, read-only`);
  $("sign-in").hidden = false;
  $("sign-in").textContent = hasToken() ? "Sign out" : "Sign in";
  const { counts } = data.service;
  for (const link of $("views").querySelectorAll("a")) {
    const amount = counts[link.dataset.view];
    link.lastChild.textContent = amount ? compact(amount) : "";
  }
}

/** Tell what is wrong. Data that was shown before stays, in grey; the next attempt may succeed. */
function fail(error) {
  page.failures += 1;
  const isRefused = error.status === 401 || error.status === 403;
  const isConnected = error.status > 0;
  fill($("state"), pill(isRefused ? "no access" : isConnected ? "restarting" : "unreachable"), h("span.version", {}, isRefused ? "" : "reconnecting…"));
  $("sign-in").hidden = !isRefused && !hasToken();
  $("sign-in").textContent = hasToken() ? "Sign out" : "Sign in";
  if (isRefused) {
    close();
    page.history = page.caller = null;
    fill($("caller"));
    fill($("content"), h("h1", {}, page.view.title), empty("You may not see this service", error.message));
  } else if (page.shown) {
    document.body.classList.add("stale");
  } else {
    fill($("content"), h("h1", {}, page.view.title), empty("The service does not answer", `${error.message} The page tries again by itself.`));
  }
}

async function sign() {
  if (hasToken()) setToken("");
  else {
    const token = await askToken();
    if (token === null) return;
    setToken(token);
  }
  close();
  page.caller = page.history = null;
  page.failures = 0;
  refresh();
}

function nameTheme() {
  const theme = window.nnhalTheme.current();
  const [mark, name] = { auto: ["◐", "Auto"], light: ["○", "Light"], dark: ["●", "Dark"] }[theme];
  $("theme").replaceChildren(h("span", { "aria-hidden": "true" }, mark), h("span.theme-name", {}, ` ${name}`));
  $("theme").setAttribute("aria-label", `Theme: ${theme}`);
}

$("views").append(
  ...VIEWS.map((view) => h("a", { href: `#/${view.id}`, dataset: { view: view.id } }, h("span", {}, view.title), h("span.badge"))),
);
$("theme").addEventListener("click", () => {
  window.nnhalTheme.next();
  nameTheme();
});
$("sign-in").addEventListener("click", sign);
window.addEventListener("hashchange", () => {
  route();
  $("content").focus({ preventScroll: true });
  scrollTo(0, 0);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !page.isAsking) refresh();
});
window.addEventListener("online", () => {
  if (!page.isAsking) refresh();
});
nameTheme();
route();
