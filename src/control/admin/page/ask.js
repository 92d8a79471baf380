// What is asked beside the stream: hot keys and recent refusals now and then, a refusal by its id, an explanation.

import { Refused, ask } from "./api.js";
import { Table, at, empty, make, say } from "./dom.js";
import { clock, duration, percent, rate } from "./numbers.js";

/** Asks again and again while the page is seen; less often for what this gateway does not have. */
class Poll {
  constructor(every, path, show) {
    Object.assign(this, { every, path, show, runs: 0 });
    document.addEventListener("visibilitychange", () => !document.hidden && this.wanted && this.start());
  }

  start() {
    this.wanted = true;
    const run = ++this.runs;
    this.turn(run);
  }

  stop() {
    this.wanted = false;
    this.runs += 1;
    clearTimeout(this.timer);
  }

  async turn(run) {
    clearTimeout(this.timer);
    let wait = this.every;
    try {
      const answer = await ask(this.path());
      if (run === this.runs) this.show(answer, null);
    } catch (error) {
      if (!(error instanceof Refused)) wait = this.every * 2;
      else if (error.status === 404) wait = 30000;
      if (run === this.runs) this.show(null, error);
    }
    if (run === this.runs && !document.hidden) this.timer = setTimeout(() => this.turn(run), wait);
  }
}

export class Asks {
  constructor() {
    this.policy = null;
    const number = (title, of, tone) => ({ title, of, number: true, tone });
    this.hotTable = new Table(at("hot-keys"), "Last minute, per second", [
      { title: "Key", of: (row) => row.key },
      { title: "Policy", of: (row) => row.policy },
      number("Requests", (row) => rate(row["requests-per-second"])),
      number("Refused", (row) => rate(row["denied-per-second"]), (row) => (row["denied-per-second"] > 0 ? "bad" : "")),
      number("Share of policy", (row) => (row["of-policy"] === undefined ? "" : percent(row["of-policy"]))),
      { title: "State", short: true, of: (row) => (row.hot ? "hot" : ""), tone: () => "warn" },
    ]);
    this.recentTable = new Table(at("recent"), "Newest first; select an id to see why", [
      { title: "Request", of: (row) => (!row["request-id"] ? `check of ${row.domain}` : { text: row["request-id"], press: () => this.find(row["request-id"]), label: `Why was ${row["request-id"]} refused?` }) },
      { title: "At", short: true, of: (row) => clock(Date.parse(row.time) / 1000) },
      { title: "Reason", of: reason },
      { title: "Key", of: (row) => row.windows?.[0]?.key },
    ]);
    const ofPolicy = (first) => (this.policy ? `${first}policy=${encodeURIComponent(this.policy)}` : "");
    this.hot = new Poll(5000, () => `/v1/hot-keys?limit=5${ofPolicy("&")}`, (answer, error) => this.showHot(answer, error));
    this.recent = new Poll(3000, () => `/v1/decisions?refused=true&limit=10${ofPolicy("&")}`, (answer, error) => this.showRecent(answer, error));
    at("find-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.find(at("request-id").value.trim());
    });
    at("explain-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.explain();
    });
    at("policy-all").addEventListener("click", () => this.pick(null));
  }

  start() {
    this.hot.start();
    this.recent.start();
  }

  stop() {
    this.hot.stop();
    this.recent.stop();
  }

  /** Shows keys and refusals of one policy, or of all. */
  pick(policy) {
    this.policy = policy;
    at("policy-filter").hidden = policy === null;
    say(at("policy-filtered"), policy ?? "");
    if (policy === null) document.querySelector("#policies button")?.focus();
    this.start();
  }

  showHot(answer, error) {
    // What the fleet has said of minutes that are over, and what is this node's alone or of this minute.
    const name = (row) => JSON.stringify([row.policy, row.id, row.key]);
    const own = new Map((answer?.items ?? []).map((row) => [name(row), row]));
    const all = new Map((answer?.fleet?.items ?? []).map((row) => [name(row), { ...own.get(name(row)), ...row }]));
    for (const [id, row] of own) if (!all.has(id)) all.set(id, row);
    const sorted = [...all.values()].sort((one, other) => other["requests-per-second"] - one["requests-per-second"]).slice(0, 20);
    this.hotTable.show(sorted, () => (error ? absent(error, "Hot keys are not enabled on this gateway.") : empty("No key was counted in the last minute.")));
  }

  showRecent(answer, error) {
    this.recentTable.show(answer?.items ?? [], () => (error ? absent(error, "This gateway keeps no decisions.")
      : empty("No refusal is kept. To choose which decisions are kept: ", '[log] decisions = { denied = "100%" }')));
  }

  async find(id) {
    if (!id) return;
    at("request-id").value = id;
    await this.answer(at("found"), async () => {
      const found = await ask(`/v1/decisions/${encodeURIComponent(id)}`);
      return make("pre", { tabindex: "0", "aria-label": "Decisions about this request" }, found.text);
    });
    at("find-title").scrollIntoView({ block: "nearest" });
  }

  async explain() {
    const query = new URLSearchParams({ method: at("explain-method").value.trim() || "GET", url: at("explain-url").value.trim() });
    const from = at("explain-from").value.trim();
    if (from) query.set("from", from);
    for (const line of at("explain-headers").value.split("\n")) if (line.trim()) query.append("header", line.trim());
    const shown = at("explained");
    shown.hidden = false;
    try {
      say(shown, (await ask(`/v1/explain?${query}`)).text);
      shown.className = "";
    } catch (error) {
      say(shown, error.message);
      shown.className = "bad";
    }
  }

  /** Shows what `work` makes, or why there is nothing. */
  async answer(place, work) {
    try {
      place.replaceChildren(await work());
    } catch (error) {
      place.replaceChildren(make("p", { class: error instanceof Refused ? "" : "bad" }, error.message));
    }
  }
}

/** What there is not, in the gateway's own words if it has some. */
function absent(error, unknown) {
  if (!(error instanceof Refused)) return empty("The gateway does not respond.");
  if (error.status === 404 && error.message.startsWith("no such endpoint")) return empty(unknown);
  return empty(error.message);
}

/** `60 per minute, 3 at once`, `5 in 10 s`, `2 in flight`, as a refusal's text has it. */
function allowance({ limit, burst, "period-ms": ms }) {
  if (!ms) return `${limit} in flight`;
  const unit = { 1000: "second", 60000: "minute", 3600000: "hour" }[ms];
  const period = unit ? `per ${unit}` : `in ${duration(ms / 1000)}`;
  return burst ? `${limit} ${period}, ${burst} at once` : `${limit} ${period}`;
}

/** Why a request was refused, in a few words: the first window is the one that refused. */
function reason(row) {
  const window = row.windows?.[0];
  if (row.blocked) return "blocked by an override";
  if (row["redis-down"]) return "Redis was unavailable";
  if (!window) return "";
  const limit = allowance(window);
  const why = window.penalty ? "penalty" : window.override ? `${limit}, by an override` : limit;
  return `${window.policy}: ${why}`;
}
