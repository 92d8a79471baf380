"""Load on one core, and what a proxy cost while it lasted.

The load is closed: a fixed number of connections, each sending its next request when the answer is
there, as fast as proxy and load core allow. The cost is taken over a window in the middle of the load,
from the proxy's CPU time and from the upstream's own count of requests, so neither connecting nor
handshakes are in it and a request that never reached the upstream is not counted.
"""

import math
import os
import re
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import programs
from process import core_busy_seconds
from programs import WORK
from proxies import CONF, LOAD_CORE, PROXY_CORE, Edge

LEAD_SECONDS = 1  # from the first connection to the window: connections are made, caches are warm
TAIL_SECONDS = 1  # after the window the load goes on, so that its end is outside too
WRK_CONNECTIONS = 64
CLOSED_CONNECTIONS = 32  # at a time, where each serves one request
H2_CONNECTIONS = 8
H2_STREAMS = 16
TLS_CIPHER = "TLS_AES_128_GCM_SHA256"
REQUEST_LOG = WORK / "run/h2load.requests"


@dataclass(frozen=True)
class Case:
    """What clients speak to the proxy."""

    name: str
    title: str
    is_tls: bool
    is_h2: bool
    is_closed: bool = False
    """Each request has a connection of its own."""


CASES = [
    Case("h1", f"HTTP/1.1, {WRK_CONNECTIONS} connections", is_tls=False, is_h2=False),
    Case("tls-h1", f"HTTP/1.1 over TLS, {WRK_CONNECTIONS} connections", is_tls=True, is_h2=False),
    Case("tls-h2", f"HTTP/2 over TLS, {H2_CONNECTIONS} connections of {H2_STREAMS} streams", is_tls=True, is_h2=True),
    Case("closed", "HTTP/1.1, a connection for each request", is_tls=False, is_h2=False, is_closed=True),
]


@dataclass(frozen=True)
class Sample:
    """One proxy under one case, once."""

    cpu_us: float
    """CPU time of the proxy for each request, microseconds."""
    user_us: float
    system_us: float
    requests_per_second: float
    p50_us: float
    p99_us: float
    busy: float
    """Share of its core that the proxy used; below 1 the load core was the limit."""
    foreign: float
    """Share of the proxy's core that other processes used: above a few percent the run was disturbed."""
    upstream_connects: int
    """Connections made to the upstream within the window: 0 where they are kept."""


def measure(edge: Edge, case: Case, upstream: int, seconds: int) -> Sample:
    """Puts load on `edge` and takes its cost over `seconds` of it.

    Raises when any answer is not a 2xx: what is refused is cheap and must not be compared.
    """
    programs.debian("wrk", "h2load", "taskset", "setpriv")
    whole = LEAD_SECONDS + seconds + TAIL_SECONDS
    generator = start(edge, case, whole)
    try:
        time.sleep(LEAD_SECONDS)
        before = Reading.take(edge, upstream)
        time.sleep(seconds)
        after = Reading.take(edge, upstream)
        output, _ = generator.communicate(timeout=whole + 10)
    finally:
        if generator.poll() is None:
            generator.kill()
            generator.wait()
    if generator.returncode != 0:
        raise RuntimeError(f"{edge.name}, {case.name}: the load generator failed:\n{output}")
    latency = _h2load_latency(output, before.at, after.at) if case.is_h2 else _wrk_latency(output)
    if edge.access_log is not None and edge.access_log.exists():
        os.truncate(edge.access_log, 0)
    return sample(before, after, latency)


def start(edge: Edge, case: Case, seconds: int) -> subprocess.Popen:
    """Begins to put load on `edge`, from the load's core."""
    argv = _h2load(edge, seconds) if case.is_h2 else _wrk(edge, case, seconds)
    pinned = ["taskset", "--cpu-list", str(LOAD_CORE), "setpriv", "--pdeathsig", "TERM", *argv]
    env = os.environ | {"OPENSSL_CONF": str(CONF / "openssl.cnf")}
    return subprocess.Popen(pinned, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@dataclass(frozen=True)
class Reading:
    """What has been done and spent until now."""

    at: float
    cpu: object
    core_busy_seconds: float
    requests: int
    connects: int

    @staticmethod
    def take(edge: Edge, upstream: int) -> "Reading":
        """Asks the upstream for its count and the kernel for the proxy's time."""
        url = f"http://127.0.0.1:{upstream}/upstream-status"
        with urllib.request.urlopen(url, timeout=5) as answer:
            # Third line: connections accepted, connections handled, requests.
            accepted, _handled, requests = answer.read().decode().splitlines()[2].split()
        return Reading(time.time(), edge.process.cpu(), core_busy_seconds(PROXY_CORE), int(requests), int(accepted))


def sample(before: Reading, after: Reading, latency: tuple[float, float] = (math.nan, math.nan)) -> Sample:
    """What lies between two readings."""
    seconds = after.at - before.at
    # Asking for the count is itself one request and one connection.
    requests = after.requests - before.requests - 1
    if requests < 1000:
        raise RuntimeError(f"only {requests} requests reached the upstream in {seconds:.1f} s")
    cpu = after.cpu.since(before.cpu)
    cpu_us = cpu.total_ns / 1000 / requests
    busy = cpu.total_ns / 1e9 / seconds
    core_busy = (after.core_busy_seconds - before.core_busy_seconds) / seconds
    return Sample(
        cpu_us=cpu_us,
        user_us=cpu_us * cpu.user_share,
        system_us=cpu_us * (1 - cpu.user_share),
        requests_per_second=requests / seconds,
        p50_us=latency[0],
        p99_us=latency[1],
        busy=busy,
        foreign=max(0.0, core_busy - busy),
        upstream_connects=after.connects - before.connects - 1,
    )


def _wrk(edge: Edge, case: Case, seconds: int) -> list[str]:
    url = f"https://127.0.0.1:{edge.tls}/" if case.is_tls else f"http://127.0.0.1:{edge.plain}/"
    connections = ["-H", "Connection: close", f"-c{CLOSED_CONNECTIONS}"] if case.is_closed else [f"-c{WRK_CONNECTIONS}"]
    return ["wrk", "-t1", *connections, f"-d{seconds}s", "--latency", url]


def _wrk_latency(output: str) -> tuple[float, float]:
    """Median and 99th percentile in microseconds, over the whole load."""
    if "Non-2xx" in output or "Socket errors" in output:
        raise RuntimeError(f"not every request was answered with 2xx:\n{output}")
    unit = {"us": 1.0, "ms": 1e3, "s": 1e6}
    found = {}
    for percent, number, name in re.findall(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)$", output, re.MULTILINE):
        found[percent] = float(number) * unit[name]
    return found["50"], found["99"]


def _h2load(edge: Edge, seconds: int) -> list[str]:
    load = ["-t1", f"-c{H2_CONNECTIONS}", f"-m{H2_STREAMS}", f"-D{seconds}", f"--tls13-ciphers={TLS_CIPHER}"]
    return ["h2load", *load, f"--log-file={REQUEST_LOG}", f"https://127.0.0.1:{edge.tls}/"]


def _h2load_latency(output: str, begin: float, end: float) -> tuple[float, float]:
    """Median and 99th percentile in microseconds, of the requests begun within the window."""
    for agreed in ("Application protocol: h2\n", "TLS Protocol: TLSv1.3\n", f"Cipher: {TLS_CIPHER}\n"):
        if agreed not in output:
            raise RuntimeError(f"it was not agreed on {agreed.strip()!r}:\n{output}")
    durations = []
    for line in Path(REQUEST_LOG).read_text().splitlines():
        started_us, status, duration_us = line.split("\t")[:3]
        if not status.startswith("2"):
            raise RuntimeError(f"not every request was answered with 2xx: {line!r}\n{output}")
        if begin * 1e6 <= int(started_us) <= end * 1e6:
            durations.append(int(duration_us))
    REQUEST_LOG.unlink()
    durations.sort()
    return durations[len(durations) // 2], durations[len(durations) * 99 // 100]
