// Faults of a request, shown at the place where the person has asked for it.

import { h, prose, show } from "./dom.js";

export const complaint = (fault) =>
  h("div", { class: "fault", role: "alert" },
    h("p", null, prose(fault.message)),
    fault.faults?.length ? h("ul", null, fault.faults.map(place)) : null);

const place = ({ path, message }) => h("li", null, path && [h("code", null, path), " "], prose(message));

// Shows the result of an act, or the reason why it failed.
export async function attempted(here, act) {
  try {
    show(here, await act());
  } catch (fault) {
    show(here, complaint(fault));
  }
}
