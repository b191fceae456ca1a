// Ways from one page to another.

import { h } from "./dom.js";

const link = (href, words) => h("a", { href }, words);

const page = (name) => `#/conversations/${encodeURIComponent(name)}`;

export const toConversation = (name, ...words) => link(page(name), words);
export const toMessage = (name, at, ...words) => link(`${page(name)}?message=${at}`, words);
export const toRequest = (id, ...words) => link(`#/requests/${encodeURIComponent(id)}`, words);
export const toPolicy = (name, ...words) => link(`#/policies/${encodeURIComponent(name)}`, words);
export const toTeam = (team, ...words) => link(`#/conversations?team=${encodeURIComponent(team)}`, words);
