// What the events of the last minutes said, as columns that charts take. It holds so many moments and no more.

const MOMENTS = 300;

export class History {
  constructor() {
    this.moments = [];
  }

  add(summary) {
    // Rates of a moment say nothing.
    if (!(summary.seconds >= 0.5)) return;
    const last = this.moments.at(-1);
    // A gap stays a gap: a line across it would be a guess.
    if (last && summary.at - last.at > 3) this.push({ at: last.at + 1 });
    const policies = new Map();
    for (const policy of summary.policies.busiest) {
      policies.set(policy.name, { refused: refused(policy), admitted: admitted(policy) });
    }
    const others = summary.policies.others;
    this.push({
      at: summary.at,
      requests: summary.requests,
      policies,
      others: { refused: refused(others), admitted: admitted(others) },
    });
  }

  push(moment) {
    this.moments.push(moment);
    if (this.moments.length > MOMENTS) this.moments.shift();
  }

  times() {
    return this.moments.map((moment) => moment.at);
  }

  /** A column: what `of` says of each moment, null of a gap. */
  column(of) {
    return this.moments.map((moment) => (moment.requests ? of(moment) : null));
  }

  /** The policies with the most of one kind over all moments, at most so many. */
  most(kind, count) {
    const sums = new Map();
    for (const moment of this.moments) {
      for (const [name, policy] of moment.policies ?? []) sums.set(name, (sums.get(name) ?? 0) + policy[kind]);
    }
    const used = [...sums].filter(([, sum]) => sum > 0).sort((one, other) => other[1] - one[1]);
    return used.slice(0, count).map(([name]) => name);
  }

  /** Everything of one kind that these policies have not. */
  rest(kind, names) {
    return this.column((moment) => {
      let sum = moment.others[kind];
      for (const [name, policy] of moment.policies) if (!names.includes(name)) sum += policy[kind];
      return sum;
    });
  }
}

/** What a policy refuses by the second. */
export const refused = (policy) => (policy.denied ?? 0) + (policy["missing-rejected"] ?? 0) + (policy.penalised ?? 0);

/** What it lets through, that which shadow would have refused included. */
export const admitted = (policy) =>
  (policy.admitted ?? 0) + (policy["shadow-denied"] ?? 0) + (policy["shadow-penalised"] ?? 0);
