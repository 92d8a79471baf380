// Numbers and times as people read them.

/** A rate by the second. */
export function rate(value) {
  if (value === undefined || value === null) return "–";
  if (value === 0) return "0";
  if (value < 10) return value.toFixed(1);
  return count(Math.round(value));
}

/** A count, its thousands apart. */
export const count = (value) => Math.round(value).toLocaleString("en");

/** A duration in seconds, three digits of it. */
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

/** A share of one. */
export const percent = (share) => `${Number((share * 100).toPrecision(share < 0.1 ? 2 : 3))} %`;

/** Unix seconds as date and time of this browser's zone. */
export function instant(unixSeconds) {
  return new Date(unixSeconds * 1000).toLocaleString("sv");
}

/** Unix seconds as a time of day. */
export const clock = (unixSeconds) => new Date(unixSeconds * 1000).toLocaleTimeString("sv");
