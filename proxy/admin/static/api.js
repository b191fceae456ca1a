// The API, with its faults in words. A session that has ended leads back to the login form.

export class Fault extends Error {
  constructor(message, faults = []) {
    super(message);
    this.faults = faults;
  }
}

export const get = (path, query = {}) => asked("GET", path + written(query));
export const put = (path, body) => asked("PUT", path, body);
export const post = (path, body) => asked("POST", path, body);
export const remove = (path) => asked("DELETE", path);

function written(query) {
  const pairs = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

async function asked(method, path, body) {
  const options = { method, credentials: "same-origin", headers: {} };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(`/admin/api${path}`, options);
  } catch {
    throw new Fault("The proxy does not answer. Is it running?");
  }
  if (answer.status === 401) {
    location.reload();
    return new Promise(() => {});  // never kept: the page goes, and asks for nothing more
  }
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Fault(said.error?.message ?? `The proxy answered ${answer.status}.`, said.error?.faults);
  return said;
}
