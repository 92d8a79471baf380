// Requests to this gateway, and the token that they carry. The token is kept in this tab and in no cookie, so no other
// site can have a request made with it.

const KEPT = "sluicegate-token";

/** The gateway's refusal: its status and the sentence that it gave. */
export class Refused extends Error {
  constructor(status, detail, retryAfter) {
    super(detail);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export const token = () => sessionStorage.getItem(KEPT);

export function keepToken(text) {
  if (text) sessionStorage.setItem(KEPT, text);
  else sessionStorage.removeItem(KEPT);
}

/** Sends a request and returns the answer if it is a good one. */
export async function send(path, { method = "GET", body, headers = {}, signal } = {}) {
  const fields = { ...headers };
  if (token()) fields.Authorization = `Bearer ${token()}`;
  if (body !== undefined) fields["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method,
    headers: fields,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.detail ?? `the gateway responded with status ${answer.status}`, Number(answer.headers.get("retry-after")));
}

/** The same for an answer of JSON; `null` if there is none in it. */
export async function ask(path, options) {
  const text = await (await send(path, options)).text();
  return text ? JSON.parse(text) : null;
}
