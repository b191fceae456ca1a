// What went wrong, what operators did, and what is in force.

import { get } from "./api.js";
import { words } from "./conversation.js";
import { badge, h, show, table } from "./dom.js";
import { ago, moment } from "./format.js";

export async function events(place, _, query) {
  const least = query.get("least") ?? "warning";
  const draw = async () => {
    const [{ events: found }, { acts }, told] = await Promise.all([get("/events", { least }), get("/audit"), get("/configuration")]);
    show(place,
      h("h1", null, "Events"),
      h("section", null, h("h2", null, "Configuration"), configuration(told)),
      h("section", null,
        h("div", { class: "row-head" }, h("h2", null, least === "info" ? "Everything" : "Warnings and errors"),
          h("nav", { class: "spans", "aria-label": "Severity" }, ["info", "warning", "error"].map((each) => h("a", { href: `#/events?least=${each}`, "aria-current": each === least && "true" }, each)))),
        found.length ? table(["When", "What", "Conversation", "Details", "Machine"], found.map(line), "Events") : h("p", { class: "good" }, "None.")),
      h("section", null, h("h2", null, "Done by operators"),
        acts.length ? table(["When", "Who", "From", "What", "Of", "How it ended"], acts.map(act), "Audit log") : h("p", { class: "note" }, "Nothing yet."),
        h("p", { class: "note" }, "Of this machine; the whole log is audit.jsonl in the directory of its state.")));
  };
  await draw();
  return () => (place.contains(document.activeElement) ? null : draw());
}

const configuration = (told) => h("dl", { class: "turn" },
  [["Release", told.release], ["File", told.file ?? "none: defaults, environment and command line"], ["Version", told.version], ["State", told.state],
    ["Originals", told.transcripts], ["Upstreams", told.upstreams.map((each) => `${each.name} ${each.base_url}`).join(", ")]]
    .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  told.refused ? h("div", { class: "fault" }, h("p", null, `Refused ${ago(told.refused.at)}; what was in force before still is:`), h("pre", null, told.refused.why)) : null);

const line = (each) => [
  h("span", { title: moment(each.at) }, ago(each.at)),
  badge(each.name, each.severity),
  each.conversation ? h("a", { href: `#/conversations/${encodeURIComponent(each.conversation)}` }, h("code", null, each.conversation)) : "",
  words(each),
  h("code", null, each.machine),
];

const act = (each) => [
  moment(Date.parse(each.at) / 1000), each.who, each.address, each.act, each.subject,
  badge(each.outcome, each.outcome === "done" ? "" : "warning"),
];
