// The page: asks for a token if the gateway wants one, follows the stream, and hands each event to the panels.

import { Refused, ask, keepToken, token } from "./api.js";
import { at, say } from "./dom.js";
import { Asks } from "./ask.js";
import { Changes } from "./change.js";
import { Charts } from "./charts.js";
import { History } from "./history.js";
import { clock } from "./numbers.js";
import { Panels } from "./panels.js";
import { Stream } from "./stream.js";

const history = new History();
const charts = new Charts(history);
const asks = new Asks();
const panels = new Panels((policy) => {
  asks.pick(policy);
  at("hot-title").scrollIntoView({ block: "nearest" });
});
const changes = new Changes();
let me = null;
/** When the last event came, Unix seconds. */
let heard = null;

const stream = new Stream({
  event(summary) {
    heard = Date.now() / 1000;
    history.add(summary);
    panels.show(summary);
    charts.show();
    if (me) changes.show(me, summary.database !== undefined);
  },
  state(word, detail) {
    const isGone = word === "reconnecting";
    const since = isGone && heard ? ` since ${clock(heard)}` : "";
    say(at("connection"), detail ? `${word}${since}: ${detail}` : word + since);
    at("connection").className = word === "live" ? "" : "warn";
    // What is shown is of before: of a gateway that does not answer nobody knows what it is doing; its next event says it.
    at("figures").classList.toggle("stale", isGone);
    if (isGone) at("phase").hidden = true;
  },
  refused: askForToken,
});

/** Shows the form, and why if a token was refused. */
function askForToken(error) {
  stream.stop();
  asks.stop();
  me = null;
  const had = token();
  if (error.status === 401) keepToken(null);
  at("figures").hidden = true;
  at("sign-in").hidden = false;
  at("leave").hidden = true;
  say(at("who"), "");
  say(at("connection"), "signed out");
  say(at("sign-in-why"), had || error.status !== 401 ? `The gateway refused the request: ${error.message}.` : "This gateway requires a token of [admin] with the role read or more.");
  at("sign-in-why").className = had ? "bad" : "";
  at("token").focus();
}

async function begin() {
  try {
    me = await ask("/v1/whoami");
  } catch (error) {
    if (error instanceof Refused && [401, 403, 421].includes(error.status)) {
      askForToken(error);
      return;
    }
    say(at("connection"), "reconnecting");
    setTimeout(begin, 2000);
    return;
  }
  at("sign-in").hidden = true;
  at("figures").hidden = false;
  at("leave").hidden = !token();
  say(at("who"), me.who === "-" ? `role ${me.role}` : `${me.who}, role ${me.role}`);
  stream.start();
  asks.start();
}

at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(at("token").value.trim());
  at("token").value = "";
  begin();
});

// A new document, so that nothing of what was shown is left in this one.
at("leave").addEventListener("click", () => {
  keepToken(null);
  location.reload();
});

begin();
