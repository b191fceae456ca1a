// Words in the saved originals.

import { get } from "./api.js";
import { empty, h, show } from "./dom.js";

export async function search(place, _, query) {
  const text = query.get("text") ?? "";
  const found = h("div", { "aria-live": "polite" });
  const go = (event) => {
    event.preventDefault();
    const said = new FormData(event.currentTarget);
    location.hash = `#/search?${new URLSearchParams({ text: said.get("text"), ...(said.get("case") && { case: "true" }) })}`;
  };
  show(place,
    h("h1", null, "Search"),
    h("form", { class: "filters", role: "search", onsubmit: go },
      h("input", { type: "search", name: "text", value: text, "aria-label": "Words", placeholder: "a path, an id, a sentence", autofocus: true }),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "case", checked: query.get("case") === "true" }), "heed capitals"),
      h("button", { class: "primary" }, "Search")),
    found);
  if (!text) {
    show(found, h("p", { class: "note" }, "Looks through what clients sent and models answered, as far as originals are kept here."));
    return;
  }
  show(found, h("p", { class: "waiting" }, "…"));
  const { hits, whole } = await get("/search", { text, case: query.get("case") === "true" });
  show(found, hits.length ? [h("p", { class: "note" }, `${hits.length} places${whole ? "" : ", and there may be more"}.`), h("ol", { class: "hits" }, hits.map(hit))]
    : empty("Nowhere", h("p", null, whole ? "These words stand in no original that is kept here." : "Not in what could be looked through in ten seconds.")));
}

const hit = (each) => h("li", null,
  h("a", { href: `#/conversations/${encodeURIComponent(each.conversation)}` }, h("code", null, each.conversation)),
  h("small", null, ` ${each.role} · ${each.seen.slice(0, 16).replace("T", " ")}`),
  h("p", null, "… ", each.before, h("mark", null, each.found), each.after, " …"));
