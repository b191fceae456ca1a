// What if? A policy on stored conversations, compared with another one.

import { post } from "./api.js";
import { pair } from "./charts.js";
import { choice } from "./controls.js";
import { figure, h, note, show, table } from "./dom.js";
import { attempted } from "./faults.js";
import { counted, dollars, exact, many, percent } from "./format.js";

const DAYS = [[1, "day"], [7, "7 days"], [30, "30 days"]];

export function trial(name, { names, teams, conversation }) {
  const said = h("div", { "aria-live": "polite" });
  const begin = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const button = event.currentTarget.querySelector("button");
    button.disabled = true;
    show(said, note("Replaying; this takes up to 20 seconds …"));
    attempted(said, async () => {
      const against = form.get("against");
      const traffic = { team: form.get("team") ?? "", days: Number(form.get("days")), conversation: form.get("conversation") };
      const told = await post("/what-if", { policy: name, against, ...traffic });
      return outcome(told, name, against);
    }).then(() => { button.disabled = false; });
  };
  const days = h("select", { name: "days", "aria-label": "days" },
    DAYS.map(([each, words]) => h("option", { value: each, selected: each === 7 }, words)));
  const whose = teams.length ? choice("team", "all teams", teams, "") : "all clients";
  return h("form", { class: "trial", onsubmit: begin },
    h("p", null, h("b", null, "What if "), "the conversations of ", whose, " of the last ", days,
      " had gone through it, compared with ", choice("against", null, names, "default"), "? ",
      h("button", null, "What if?")),
    h("p", null, h("input", {
      name: "conversation", value: conversation, "aria-label": "conversation",
      placeholder: "or one conversation, by its id", size: 30,
    })),
    note("Replays stored conversations, turn by turn. Nothing is sent anywhere."),
    said);
}

function outcome({ conversations, left_out: out, tried, today }, name, against) {
  if (!tried.requests) return note("No conversation of this time is kept here, so there is nothing to replay.");
  const both = (of) => [[against, "raw", of(today)], [name, "sent", of(tried)]];
  const row = (words, of) => [words, figure(of(today)), figure(of(tried))];
  const left = out ? `; ${exact(out)} left out for want of time or size` : "";
  return [
    h("p", null, `${counted(conversations, "conversation")}, ${counted(tried.requests, "request")}${left}.`),
    h("h4", null, "Tokens forwarded"), pair(both((each) => each.tokens_forwarded), many),
    h("h4", null, "Cost, summaries included, in percent of doing nothing"),
    pair(both((each) => each.cost_share), (share) => percent(share, 1)),
    h("h4", null, "The same if results that are needed again are read again"),
    pair(both((each) => each.cost_with_rereads_share), (share) => percent(share, 1)),
    table(["", figure(against), figure(name)], [
      row("Dollars, where prices are known", (each) => (each.priced ? dollars(each.dollars) : "–")),
      row("Read from the cache", (each) => percent(each.cached_share, 1)),
      row("Rewrites", (each) => exact(each.rewrites)),
      row("Largest request, tokens", (each) => exact(each.peak)),
      row("Over the window", (each) => exact(each.over_window)),
      row("Summaries", (each) => exact(each.summaries)),
      row("Fetched again after they were shortened", (each) => exact(each.refetches)),
      row("Needed passages still there", (each) => (each.spans === null ? "–" : percent(each.spans, 1))),
      row("Extra steps that the saving pays for, per 1,000 removed tokens",
        (each) => (each.lambda === null ? "–" : each.lambda.toFixed(2))),
    ], "What if"),
  ];
}
