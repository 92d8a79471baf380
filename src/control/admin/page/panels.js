// The panels that each event fills: figures of now, policies, routes, upstream servers, Redis, reasons, the configuration.

import { Table, at, empty, facts, say } from "./dom.js";
import { clock, count, duration, instant, percent, rate } from "./numbers.js";
import { admitted, refused } from "./history.js";

export class Panels {
  /** `pick(policy)` is called when somebody chooses a policy. */
  constructor(pick) {
    const number = (title, of, tone) => ({ title, of, number: true, tone });
    this.policies = new Table(at("policies"), "Per second; refused in total since the start", [
      { title: "Policy", of: (row) => (row.kind ? row.name : { text: row.name, press: () => pick(row.name), label: `Show keys and refusals of ${row.name}` }) },
      number("Refused", (row) => rate(refused(row)), (row) => (refused(row) > 0 ? "bad" : "")),
      number("Share refused", (row) => (refused(row) + admitted(row) > 0 ? percent(refused(row) / (refused(row) + admitted(row))) : "–")),
      number("Admitted", (row) => rate(admitted(row))),
      number("Refused in shadow", (row) => rate((row["shadow-denied"] ?? 0) + (row["shadow-penalised"] ?? 0))),
      number("Penalised", (row) => rate(row.penalised)),
      { title: "Limits", of: (row) => (row.limits ?? []).join("; ") },
      number("Refused in total", (row) => (row["refused-total"] === undefined ? "" : count(row["refused-total"]))),
    ]);
    this.routes = new Table(at("routes"), "Per second, and request duration", [
      { title: "Route", of: (row) => row.name },
      number("Requests", (row) => rate(row["per-second"])),
      number("4xx", (row) => rate(row["4xx"]), (row) => (row["4xx"] > 0 ? "warn" : "")),
      number("5xx", (row) => rate(row["5xx"]), (row) => (row["5xx"] > 0 ? "bad" : "")),
      number("Median", (row) => (row.kind ? "" : duration(row.p50))),
      number("99 %", (row) => (row.kind ? "" : duration(row.p99))),
    ]);
    const health = { healthy: "good", "warming-up": "warn" };
    this.upstreams = new Table(at("upstreams"), "Unhealthy first", [
      { title: "Upstream", of: (row) => row.upstream },
      { title: "Server", short: true, of: (row) => row.server },
      { title: "State", short: true, of: (row) => row.state, tone: (row) => health[row.state] ?? (row.kind ? "" : "bad") },
      number("Open", (row) => row.open),
      number("Waiting", (row) => row.waiting, (row) => (row.waiting > 0 ? "warn" : "")),
      { title: "Last failure", of: (row) => row.failure },
    ]);
    this.redis = new Table(at("redis"), "Shards, unhealthy first; per second", [
      { title: "Shard", of: (row) => row.shard },
      { title: "State", short: true, of: (row) => (row.up ? (row["in-time"] ? "up" : "slow") : row.condition), tone: (row) => (row.up ? (row["in-time"] ? "good" : "warn") : "bad") },
      number("Operations", (row) => rate(row.operations)),
      number("Round trip", (row) => duration(row["round-trip"] || null)),
      number("Late", (row) => rate(row.late), (row) => (row.late > 0 ? "warn" : "")),
      number("Lost", (row) => rate(row.lost), (row) => (row.lost > 0 ? "bad" : "")),
      { title: "Server", of: (row) => [row.server, row.version].filter(Boolean).join(", ") },
    ]);
    this.reasons = new Table(at("reasons"), "Requests that this gateway refused, by reason", [
      { title: "Reason", of: (row) => row.reason },
      number("Per second", (row) => rate(row["per-second"])),
      number("Total", (row) => count(row.total)),
    ]);
    this.fleet = new Table(at("fleet"), "Each node's latest report, per second", [
      { title: "Node", of: (row) => row.node },
      { title: "State", short: true, of: (row) => row.phase, tone: (row) => (row.phase === "ready" ? "good" : "warn") },
      number("Requests", (row) => rate(row.requests)),
      number("Refused", (row) => rate(row.refused), (row) => (row.refused > 0 ? "bad" : "")),
      number("5xx", (row) => rate(row["5xx"]), (row) => (row["5xx"] > 0 ? "bad" : "")),
      number("99 %", (row) => duration(row.p99)),
      number("Open", (row) => count(row.open)),
      number("Generation", (row) => row.generation),
      { title: "Version", short: true, of: (row) => row.version },
    ]);
    this.fleetPolicies = new Table(at("fleet-policies"), "Per second, those that refuse most first", [
      { title: "Policy", of: (row) => row.name },
      number("Refused", (row) => rate(row.refused), (row) => (row.refused > 0 ? "bad" : "")),
      number("Admitted", (row) => rate(row.admitted)),
    ]);
  }

  show(summary) {
    this.header(summary);
    this.now(summary);
    const { policies, routes, upstreams } = summary;
    this.policies.show(withOthers(policies, "policies"), () =>
      empty("No policy is configured, so nothing is limited. A first one: ", '[policy.calls] limit = "100/m" by = ["consumer"]'));
    this.routes.show(withOthers(routes, "routes"), () => empty("No request came in the last second."));
    const servers = upstreams.first.flatMap((one) => serversOf(one));
    if (upstreams.others > 0) servers.push({ kind: "others", upstream: `${count(upstreams.others)} other upstreams`, state: "not shown" });
    this.upstreams.show(servers, () => empty("No upstream is configured: the gateway responds to every route itself."));
    this.redis.show(summary.redis ?? [], () =>
      empty("This node does not share its limits. To share them with other nodes: ", '[redis] url = "redis://127.0.0.1"'));
    this.reasons.show(summary.refusals, () => empty("No request has been refused since the start."));
    this.configuration(summary);
    at("fleet-section").hidden = !summary.fleet;
    if (summary.fleet) {
      this.fleet.show(summary.fleet.nodes, () => empty("Waiting for reports of the nodes; this takes some seconds."));
      this.fleetPolicies.show(summary.fleet.policies, () => empty("No policy decided a request in the last seconds."));
    }
  }

  header({ node, phase, version }) {
    say(at("node"), node);
    const badge = at("phase");
    badge.hidden = false;
    badge.className = `badge ${phase === "ready" ? "" : "warn"}`;
    say(badge, phase);
    say(at("version"), `Sluicegate ${version}`);
    document.title = `${node} · Sluicegate`;
  }

  now({ requests, policies, connections, seconds }) {
    const all = [...policies.busiest, policies.others];
    const denied = all.reduce((sum, policy) => sum + refused(policy), 0);
    const shown = (value) => (seconds ? rate(value) : "…");
    facts(at("now"), [
      ["Requests per second", shown(requests["per-second"])],
      ["Refused by policies", shown(denied), denied > 0 ? "bad" : ""],
      ["Server errors (5xx)", shown(requests["5xx"]), requests["5xx"] > 0 ? "bad" : ""],
      ["Median", duration(requests.p50)],
      ["99 % within", duration(requests.p99)],
      ["Connections open", count(connections.open)],
      ["Connections refused", shown(connections.refused), connections.refused > 0 ? "warn" : ""],
    ], true);
  }

  configuration({ configuration, database, node, version }) {
    const { reloads } = configuration;
    const last = configuration["last-reload"];
    const pairs = [
      ["Generation", `${configuration.generation}, since ${instant(configuration["loaded-at"])}`],
      ["Fingerprint", configuration.fingerprint],
      ["Contents", `${count(configuration.routes)} routes, ${count(configuration.policies)} policies, ${count(configuration.upstreams)} upstreams`],
      ["Reloads", `${count(reloads.succeeded)} succeeded, ${count(reloads.failed)} failed`, reloads.failed > 0 ? "warn" : ""],
      ["Last reload", last ? `${clock(last.at)}: ${last["in-force"] ? "in force" : "refused, the previous configuration stays in force"}: ${last.said}` : "none since the start", last && !last["in-force"] ? "bad" : ""],
    ];
    if (database) pairs.push(["Control plane", database]);
    pairs.push(["Gateway", `${node}, Sluicegate ${version}`]);
    facts(at("configuration"), pairs);
  }
}

/** The busiest, and a line for all others if there are any. */
function withOthers({ busiest, others }, what) {
  if (!others.count) return busiest;
  return [...busiest, { ...others, kind: "others", name: `${count(others.count)} other ${what}` }];
}

function serversOf(upstream) {
  const rows = upstream.first.map((server) => ({ upstream: upstream.name, ...server }));
  const rest = upstream.servers - rows.length;
  if (rest > 0) rows.push({ kind: "others", upstream: upstream.name, server: `${count(rest)} more`, state: "" });
  if (upstream["all-used"]) rows.push({ kind: "others", upstream: upstream.name, server: "all", state: "used, because too few are healthy" });
  return rows;
}
