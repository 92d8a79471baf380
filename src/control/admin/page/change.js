// What may be changed here, by whoever has the role for it: overrides, resets, tiers of consumers. Each form is one call of
// the admin API, which checks, writes it down and says what is wrong.

import { Refused, ask } from "./api.js";
import { Table, at, empty, make } from "./dom.js";
import { count } from "./numbers.js";

/** A browser takes seconds to lay out a table of many thousand rows. */
const ROWS_MAX = 2000;
const ROLES = ["probe", "read", "operate", "admin"];

export class Changes {
  /** Shows what this client may do. `has` says whether there is a database. */
  show({ who, role }, hasDatabase) {
    const place = at("change");
    const state = `${who} ${role} ${hasDatabase}`;
    if (this.state === state) return;
    this.state = state;
    if (!hasDatabase) {
      place.replaceChildren(empty("Changes need a database: ", '[database] url = "sqlite:state.db"'));
      return;
    }
    const may = ROLES.indexOf(role) >= ROLES.indexOf("operate");
    place.replaceChildren(this.overrides(may), ...(may ? [this.add(), this.reset(), this.tier()] : [refusal(who, role)]));
    this.list();
  }

  overrides(may) {
    const panel = make("div", { class: "panel" });
    const columns = [
      { title: "For", of: (row) => [row["user-id"], row["tenant-id"] && `tenant ${row["tenant-id"]}`, row.subject].filter(Boolean).join(", ") },
      { title: "Policy", of: (row) => row.policy ?? "all" },
      { title: "Limit", of: limit, number: true },
      { title: "Until", short: true, of: (row) => row["expires-at"] ?? "no end" },
      { title: "Why", of: (row) => row.reason },
      { title: "By", of: (row) => row["created-by"] },
    ];
    if (may) columns.push({ title: "Change", of: (row) => ({ text: "Delete", press: () => this.remove(row), label: `Delete the override for ${whom(row)}` }) });
    this.table = new Table(panel, "Overrides, newest first", columns);
    this.filter = make("input", { id: "override-filter", maxlength: "256", autocomplete: "off", spellcheck: "false", oninput: () => this.draw() });
    this.shown = make("p", { id: "overrides-shown", class: "note" });
    this.said = make("p", { role: "status" });
    this.all = [];
    return make("div", {}, make("label", { for: "override-filter" }, "Show only overrides with this name, policy or reason"), this.filter, this.shown, panel, this.said);
  }

  /** Asks for all overrides: the gateway lists them oldest first, so the newest are on the last page. */
  async list() {
    const run = (this.lists = (this.lists ?? 0) + 1);
    try {
      const all = [];
      let next;
      do {
        const page = await ask(`/v1/overrides?limit=500${next ? `&after=${encodeURIComponent(next)}` : ""}`);
        all.push(...page.items);
        next = page.next;
      } while (next && run === this.lists);
      if (run !== this.lists) return;
      this.all = all.reverse();
      this.draw();
    } catch (error) {
      this.say(error.message, true);
    }
  }

  /** Shows the overrides that hold the text of the filter. */
  draw() {
    const wanted = this.filter.value.trim().toLowerCase();
    const words = (row) => [row["user-id"], row["tenant-id"], row.subject, row["override-type"], row.policy ?? "all", row.reason, row["created-by"]];
    const found = this.all.filter((row) => words(row).some((word) => word?.toLowerCase().includes(wanted)));
    this.table.show(found.slice(0, ROWS_MAX), () => empty(this.all.length ? "No override matches this text." : "There are no overrides."));
    const more = found.length > ROWS_MAX ? `, the newest ${count(ROWS_MAX)} are shown` : "";
    this.shown.textContent = this.all.length ? `${count(found.length)} of ${count(this.all.length)}${more}` : "";
  }

  async remove(row) {
    if (!confirm(`Delete the override for ${whom(row)} (${limit(row)})? It applies to no further request.`)) return;
    await this.call("DELETE", `/v1/overrides/${encodeURIComponent(row.id)}`, undefined, `The override for ${whom(row)} is deleted.`);
  }

  add() {
    return form("Add an override", [
      ["user-id", "Consumer"], ["tenant-id", "or tenant"], ["policy", "Policy (all if empty)"],
      ["override-type", "Kind", ["absolute", "multiplicative"]], ["value", "Limit, or factor", "number"],
      ["duration", "Duration, as 1h30m (no end if empty)"], ["reason", "Why", "required"],
    ], "Add", async (given) => {
      const body = { ...given, value: Number(given.value) };
      return this.call("POST", "/v1/overrides", body, `The override for ${whom(given)} is in force.`);
    });
  }

  reset() {
    return form("Reset counts and penalties", [
      ["kind", "Consumer or tenant", ["consumer", "tenant"]], ["id", "Name", "required"], ["policy", "Policy (all if empty)"], ["reason", "Why", "required"],
    ], "Reset", async ({ kind, id, ...body }) => {
      if (!confirm(`Reset the counts and penalties of ${kind} ${id}?`)) return false;
      return this.call("POST", `/v1/usage/${kind}/${encodeURIComponent(id)}/reset`, body, `The counts of ${id} are reset.`);
    });
  }

  tier() {
    return form("Assign a tier to a consumer", [["id", "Consumer", "required"], ["tier", "Tier", "required"]], "Assign", ({ id, tier }) =>
      this.call("PUT", `/v1/consumers/${encodeURIComponent(id)}/tier`, { tier }, `${id} has the tier ${tier}.`));
  }

  async call(method, path, body, done) {
    try {
      await ask(path, { method, body });
      this.say(done, false);
      await this.list();
      return true;
    } catch (error) {
      this.say(error instanceof Refused ? error.message : "The gateway did not respond: check whether the change was made before you try again.", true);
      return false;
    }
  }

  say(text, isBad) {
    this.said.className = isBad ? "bad" : "good";
    this.said.textContent = text;
  }
}

const whom = (row) => row["user-id"] ?? row["tenant-id"] ?? row.subject;

/** What an override makes of limits. */
function limit(row) {
  if (row["override-type"] === "block") return `blocked with ${row.value}`;
  if (row["override-type"] === "unlimited") return "unlimited";
  return row["override-type"] === "absolute" ? count(row.value) : `× ${row.value}`;
}

function refusal(who, role) {
  const text = who === "-"
    ? "Changes need a token or a client certificate: "
    : `${who} has the role ${role}; changes need operate or more. `;
  return empty(text, who === "-" ? '[admin] token = "${file:/path}"' : null);
}

/** A form whose fields have a name, a label and a kind; it is emptied when `work` has done it. */
function form(title, fields, action, work) {
  const id = (name) => `${action.toLowerCase()}-${name}`;
  const field = ([name, label, kind]) => {
    const input = Array.isArray(kind)
      ? make("select", { id: id(name), name }, ...kind.map((one) => make("option", { value: one }, one)))
      : make("input", {
          id: id(name), name, maxlength: "4096", autocomplete: "off", spellcheck: "false",
          required: kind !== undefined, inputmode: kind === "number" ? "decimal" : null,
        });
    return make("div", {}, make("label", { for: id(name) }, label), input);
  };
  const inputs = make("form", { class: "fields" }, ...fields.map(field), make("div", {}, make("button", { type: "submit" }, action)));
  inputs.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(inputs)].filter(([, value]) => value.trim() !== ""));
    if (await work(given)) inputs.reset();
  });
  return make("div", {}, make("h3", {}, title), inputs);
}
