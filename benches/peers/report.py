"""What the rounds say: medians with their range, and the gateway against each peer. As Markdown."""

import platform
import time
from pathlib import Path
from statistics import median

GATEWAY = "gateway"
# Each of these is set against all others.
OURS = (GATEWAY, "gateway-trained", "gateway-seen", "gateway-traced")

# At most this much of the peer's CPU time for each request: the project's goals, by case.
GOALS = {
    "haproxy": {"h1": 1.0, "tls-h1": 0.85, "tls-h2": 1.0},
    "haproxy-newest": {"h1": 0.85, "tls-h1": 0.85, "tls-h2": 0.7},
    "nginx-newest": {"h1": 0.95, "tls-h1": 0.95, "tls-h2": 0.8},
    "envoy": {"h1": 0.27, "tls-h1": 0.27, "tls-h2": 0.27},
    "relay": {"h1": 1.35},
    "gateway-unseen": {"h1": 1.03, "tls-h1": 1.03, "tls-h2": 1.03},
}


def machine() -> str:
    """The processor, the kernel and the day."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cores = len([line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]) - 1
    return f"{model}, {cores} cores, {platform.system()} {platform.release()}, {time.strftime('%Y-%m-%d')}"


def tables(cases: list, rounds: list[dict], versions: dict[str, str]) -> str:
    """All cases. A round is {case name: {proxy name: sample as a dict}}."""
    return "\n".join(_case(case, rounds, versions) for case in cases)


def disturbed(rounds: list[dict]) -> float:
    """The largest share of the proxy's core that others had during any sample."""
    return max(sample["foreign"] for each in rounds for case in each.values() for sample in case.values())


def _case(case, rounds: list[dict], versions: dict[str, str]) -> str:
    lines = [
        f"### {case.title}",
        "",
        "| | CPU µs a request | user | system | requests/s | p50 | p99 | core used |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = list(rounds[0][case.name])
    for name in names:
        samples = [each[case.name][name] for each in rounds]
        cpu, rate = (_spread(samples, key) for key in ("cpu_us", "requests_per_second"))
        middle = {key: median(sample[key] for sample in samples) for key in samples[0]}
        lines.append(
            f"| {versions[name]} | **{cpu[0]:.1f}** ({cpu[1]:.1f}–{cpu[2]:.1f}) "
            f"| {middle['user_us']:.1f} | {middle['system_us']:.1f} "
            f"| {rate[0]:,.0f} ({rate[1]:,.0f}–{rate[2]:,.0f}) "
            f"| {_time(middle['p50_us'])} | {_time(middle['p99_us'])} | {middle['busy']:.0%} |"
        )
    for ours in OURS:
        if ours in names:
            peers = [name for name in names if name not in OURS]
            lines += ["", *_ratios(case, rounds, versions, ours, peers)]
    return "\n".join([*lines, ""])


def _ratios(case, rounds: list[dict], versions: dict[str, str], ours: str, peers: list[str]) -> list[str]:
    """The CPU of `ours` for each request over each peer's, taken within a round, then the median."""
    lines = [f"| {versions[ours]} / peer | CPU ratio | goal | |", "|---|---|---|---|"]
    for peer in peers:
        ratios = [each[case.name][ours]["cpu_us"] / each[case.name][peer]["cpu_us"] for each in rounds]
        goal = GOALS.get(peer, {}).get(case.name)
        aim = "" if goal is None else f"≤ {goal:.2f}"
        verdict = "" if goal is None else ("met" if median(ratios) <= goal else "missed")
        spread = f"**{median(ratios):.2f}** ({min(ratios):.2f}–{max(ratios):.2f})"
        lines.append(f"| {versions[peer]} | {spread} | {aim} | {verdict} |")
    return lines


def _spread(samples: list[dict], key: str) -> tuple[float, float, float]:
    values = [sample[key] for sample in samples]
    return median(values), min(values), max(values)


def _time(microseconds: float) -> str:
    return f"{microseconds / 1000:.2f} ms"
