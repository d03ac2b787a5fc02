// Questions to the reader, and short messages.

import { h } from "./dom.js";

const TOAST_MS = 6000;

/** Ask before something is changed. Resolves to whether the reader agrees. */
export function confirm(title, text, agree) {
  return show(title, [h("p", {}, text)], agree, () => true, "danger").then(Boolean);
}

/** Ask for a token. Resolves to it, or to null. */
export function askToken() {
  const input = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true });
  const text = "The token of an identity that may observe or administer this service. This tab keeps it until it is closed.";
  const content = [h("p", {}, text), h("label", { for: "token" }, "Token"), input];
  return show("Sign in", content, "Sign in", () => input.value.trim() || null, "primary");
}

function show(title, content, agree, result, kind) {
  return new Promise((resolve) => {
    let answer = null;
    const done = () => dialog.close();
    const form = h(
      "form",
      {
        onsubmit: (submit) => {
          submit.preventDefault();
          answer = result();
          done();
        },
      },
      h("h2", { id: "dialog-title" }, title),
      ...content,
      h("div.buttons", {}, h("button", { type: "button", onclick: done }, "Cancel"), h(`button.${kind}`, { type: "submit" }, agree)),
    );
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Show a message for some seconds. */
export function toast(text, isError = false) {
  const element = h(isError ? "p.toast.error" : "p.toast", { role: isError ? "alert" : null }, text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), TOAST_MS);
}
