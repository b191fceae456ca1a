// Search in the saved originals. A hit links to its message.

import { get } from "./api.js";
import { empty, h, note, show } from "./dom.js";
import { counted } from "./format.js";
import { toMessage } from "./links.js";

export async function search(place, _, query) {
  const text = query.get("text") ?? "";
  const found = h("div", { "aria-live": "polite" });
  const go = (event) => {
    event.preventDefault();
    const said = new FormData(event.currentTarget);
    const wanted = { text: said.get("text") };
    location.hash = `#/search?${new URLSearchParams(wanted)}`;
  };
  show(place,
    h("h1", null, "Search"),
    h("form", { class: "filters", role: "search", onsubmit: go },
      h("input", {
        type: "search", name: "text", value: text, autofocus: true,
        "aria-label": "Words", placeholder: "a path, an id, a sentence",
      }),
      h("button", { class: "primary" }, "Search")),
    found);
  if (!text) {
    show(found, note("Searches messages and answers whose originals are stored here."));
    return;
  }
  show(found, h("p", { class: "waiting" }, "Searching …"));
  const { hits, whole } = await get("/search", { text });
  show(found, hits.length ? places(hits, whole) : nowhere(whole));
}

const places = (hits, whole) => [
  note(`${counted(hits.length, "place")}${whole ? "" : ", and there may be more"}.`),
  h("ol", { class: "hits" }, hits.map(hit)),
];

const nowhere = (whole) => empty("No results", h("p", null, whole
  ? "No stored original contains this text."
  : "Not found within ten seconds; not all originals were searched."));

const hit = (each) => h("li", null,
  toMessage(each.conversation, each.at, each.title || each.conversation),
  h("p", null, "… ", each.before, h("mark", null, each.found), each.after, " …"),
  h("small", null, `by ${each.role === "answer" ? "the model" : each.role} · `,
    `${each.seen.slice(0, 16).replace("T", " ")} UTC · `, h("code", null, each.conversation)));
