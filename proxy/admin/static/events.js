// What went wrong, what operators did, and what is in force.

import { get } from "./api.js";
import { badge, h, note, part, show, table } from "./dom.js";
import { ago, moment } from "./format.js";
import { toConversation } from "./links.js";
import { account, event } from "./words.js";

const ORIGINALS = {
  off: "none are kept",
  lossy: "kept from when something is about to be left out",
  all: "all are kept",
};

const ROWS_MAX = 25;
const whole = new Set();
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
          ? shortened(HEAD, found.map(line), "Events")
          : h("p", { class: "good" }, "None."),
        told.shared
          ? note("Of this replica, and the newest warnings and errors of the others, whose pages lead to the conversation.")
          : null),
      part("Audit log",
        acts.length
          ? shortened(ACTS, acts.map(act), "Audit log")
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
    h("dl", { class: "turn" }, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
  ];
}

const refused = ({ at, why }) => h("div", { class: "fault" },
  h("p", null, `A change was refused ${ago(at)}; the configuration before it is still in force:`),
  h("pre", null, why));

// The newest rows; all of them at a click, for as long as the page is open.
function shortened(head, rows, caption) {
  if (rows.length <= ROWS_MAX || whole.has(caption)) return table(head, rows, caption, true);
  const place = h("div", null, table(head, rows.slice(0, ROWS_MAX), caption, true));
  const all = () => { whole.add(caption); show(place, table(head, rows, caption, true)); };
  place.append(h("button", { class: "more", onclick: all }, `All ${rows.length}`));
  return place;
}

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
