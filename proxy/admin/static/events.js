// What went wrong, what operators did, and what is in force.

import { get } from "./api.js";
import { newest } from "./controls.js";
import { badge, h, named, note, part, show } from "./dom.js";
import { ago, moment } from "./format.js";
import { toConversation } from "./links.js";
import { account, event } from "./words.js";

const ORIGINALS = {
  off: "none are kept",
  lossy: "kept from when something is about to be left out",
  all: "all are kept",
};

const ROWS_MAX = 25;
const HEAD = ["When", "What", "Conversation", "Details"];
const ACTS = ["When", "Who", "From", "What", "Of", "How it ended"];

export async function events(place, _, query) {
  const least = query.get("least") ?? "warning";
  const draw = async () => {
    const [{ events: found }, { acts }, told] =
      await Promise.all([get("/events", { least }), get("/audit"), get("/configuration")]);
    show(place,
      h("h1", null, "Events"),
      part("Configuration", configuration(told)),
      h("section", null,
        h("div", { class: "row-head" },
          h("h2", null, least === "info" ? "Everything" : "Warnings and errors"),
          h("nav", { class: "spans", "aria-label": "Severity" }, ["info", "warning", "error"].map((each) =>
            h("a", { href: `#/events?least=${each}`, "aria-current": each === least && "true" }, each)))),
        found.length
          ? newest(HEAD, found.map(line), "Events", ROWS_MAX)
          : h("p", { class: "good" }, "None."),
        told.shared
          ? note("Of this replica, and the newest warnings and errors of the others, whose pages lead to the conversation.")
          : null),
      part("Audit log",
        acts.length
          ? newest(ACTS, acts.map(act), "Audit log", ROWS_MAX)
          : note("Nothing yet."),
        note("This machine's audit log: audit.jsonl in the state folder.")));
  };
  await draw();
  return () => (place.contains(document.activeElement) ? null : draw());
}

function configuration(told) {
  const rows = [
    ["Release", told.release],
    ["File", told.file ?? "none: defaults, environment and command line"],
    ["Version", told.version],
    ["State", told.state],
    ["Originals", ORIGINALS[told.transcripts] ?? told.transcripts],
    ["Upstreams", told.upstreams.map((each) => h("span", { class: "line" }, `${each.name}: ${each.base_url}`))],
  ];
  return [
    told.refused ? refused(told.refused) : null,
    named(rows),
  ];
}

const refused = ({ at, why }) => h("div", { class: "fault" },
  h("p", null, `A change was refused ${ago(at)}; the configuration before it is still in force:`),
  h("pre", null, why));

const when = (at) => h("span", { class: "when", title: moment(at) }, ago(at));

const line = (each) => [
  when(each.at),
  h("span", null, badge(event(each.name), each.severity),
    each.times > 1 ? h("small", null, ` ${each.times} times since ${moment(each.since)}`) : null),
  each.machine ? `at ${each.machine}`
    : each.conversation ? toConversation(each.conversation, h("code", null, each.conversation)) : "–",
  account(each),
];

const act = (each) => [
  h("span", { class: "when", title: ago(each.at) }, moment(each.at)),
  each.who, each.address, each.act, each.subject || "–",
  badge(each.outcome, each.outcome === "done" ? "" : "warning"),
];
