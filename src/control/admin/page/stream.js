// Follows /v1/live: server-sent events, read by fetch because EventSource cannot send a token. It asks again when an answer
// ends, waits longer the more often that fails, and rests while nobody sees the page: a browser has only six connections
// to a gateway.

import { Refused, send } from "./api.js";

const WAIT_MS = [1000, 1000, 2000, 5000, 10000];
// A gateway sends an event each second: one that has sent none for so long is gone, or the way to it.
const SILENT_MS = 10000;

/** Reads until it is stopped. Tells `event(summary)`, `state(word, detail)`, and `refused(error)` if a token is needed. */
export class Stream {
  constructor({ event, state, refused }) {
    Object.assign(this, { event, state, refused });
    this.failures = 0;
    this.runs = 0;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.rest() : this.wanted && this.start()));
  }

  start() {
    this.wanted = true;
    this.abort();
    const run = ++this.runs;
    this.follow(run);
  }

  stop() {
    this.wanted = false;
    this.abort();
  }

  rest() {
    this.abort();
    if (this.wanted) this.state("paused");
  }

  abort() {
    this.runs += 1;
    this.controller?.abort();
    clearTimeout(this.silence);
  }

  async follow(run) {
    while (run === this.runs) {
      try {
        await this.read(run);
        if (run !== this.runs) return;
        this.state("reconnecting");
      } catch (error) {
        if (run !== this.runs) return;
        if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
          this.stop();
          this.refused(error);
          return;
        }
        this.failures += 1;
        this.state("reconnecting", error instanceof Refused ? error.message : "the gateway does not respond");
      }
      const wait = WAIT_MS[Math.min(this.failures, WAIT_MS.length - 1)];
      // Not all pages at the same moment.
      await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
    }
  }

  async read(run) {
    this.controller = new AbortController();
    this.listen();
    const answer = await send("/v1/live", { signal: this.controller.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done || run !== this.runs) return;
      this.listen();
      const events = (text + value).split("\n\n");
      text = events.pop();
      // Of those that came together only the last is of now, but all are of the history.
      for (const event of events) this.tell(event);
    }
  }

  tell(event) {
    const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
    if (!data) return;
    this.failures = 0;
    this.state("live");
    this.event(JSON.parse(data));
  }

  listen() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.controller.abort(), SILENT_MS);
  }
}
