// Buttons that change the service. They exist only for callers that may administer.

import { confirm, toast } from "./dialog.js";
import { h } from "./dom.js";
import { act } from "./service.js";

const state = { mayAdminister: false, refresh: () => {} };

/** Set who the caller is, and what to do after an action. */
export function configureActions(mayAdminister, refresh) {
  state.mayAdminister = mayAdminister;
  state.refresh = refresh;
}

export function mayAdminister() {
  return state.mayAdminister;
}

/**
 * Return a button that asks and then carries out an action; null for callers that may only read.
 * @param {string} label
 * @param {string} question what happens, for the reader to agree to
 * @param {string} name of the action
 * @param {object} body its arguments
 */
export function actionButton(label, question, name, body = {}) {
  if (!state.mayAdminister) return null;
  const run = async () => {
    if (!(await confirm(`${label}?`, question, label))) return;
    try {
      toast(await act(name, body));
    } catch (error) {
      toast(error.message, true);
    }
    state.refresh();
  };
  return h("button.small", { type: "button", onclick: run }, label);
}
