"""The proxies and their upstream: which configuration each runs on and how it is started.

All of them get one thread, the same certificate, a limit per client address, kept connections to the
same upstream. Nothing here measures.
"""

import http.client
import json
import random
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import programs
from process import Process
from programs import WORK, Program

CONF = Path(__file__).resolve().parent / "conf"
PROXY_CORE = 0
LOAD_CORE = 1
NEVER_REFUSES = 1_000_000_000
BODY_BYTES = 128
CONTROLLED_POLICIES = 10_000
CONTROLLED_OVERRIDES = 100_000
CONNECTIONS_MAX = 12_000  # the idle connections of `idle` and room beside them
_given: set[int] = set()


@dataclass
class Edge:
    """A running proxy and where it listens."""

    name: str
    version: str
    process: Process
    plain: int
    tls: int | None
    access_log: Path | None


@dataclass
class Kind:
    """A kind of proxy: how its program is had and how its configuration is filled in."""

    name: str
    obtain: Callable[[], Program]
    configure: Callable[..., tuple[list[str], bool]]
    """Writes the configuration; the command to start it with, and whether it writes an access log."""
    speaks_tls: bool = True
    program: Program | None = None


def kinds(gateway_binary: Path | None) -> list[Kind]:
    """Every proxy there is, in the order of the tables."""
    return [
        Kind("gateway", lambda: programs.gateway(gateway_binary), _gateway),
        Kind("gateway-trained", programs.gateway_trained, _gateway),
        Kind("gateway-controlled", lambda: programs.gateway(gateway_binary), _gateway_controlled),
        Kind("gateway-seen", lambda: programs.gateway(gateway_binary).called("all seen"), _gateway_seen),
        Kind("gateway-traced", lambda: programs.gateway(gateway_binary).called("traces alone"), _gateway_traced),
        Kind("gateway-unseen", lambda: programs.gateway(gateway_binary).called("nothing seen"), _gateway_unseen),
        Kind("haproxy", programs.haproxy, _haproxy),
        Kind("nginx", programs.nginx, _nginx),
        Kind("haproxy-next", programs.haproxy_next, _haproxy),
        Kind("nginx-next", programs.nginx_next, _nginx),
        Kind("haproxy-newest", programs.haproxy_newest, _haproxy),
        Kind("nginx-newest", programs.nginx_newest, _nginx),
        Kind("envoy", programs.envoy, _envoy),
        Kind("relay", programs.relay, _relay, speaks_tls=False),
    ]


def find(names: list[str], gateway_binary: Path | None) -> list[Kind]:
    """Those of `names` whose program can be had here, installed or built; says why for the others."""
    found = []
    for kind in kinds(gateway_binary):
        if kind.name not in names:
            continue
        try:
            kind.program = kind.obtain()
            found.append(kind)
        except programs.Missing as reason:
            print(f"without {kind.name}: {reason}", file=sys.stderr)
    return found


def start(kind: Kind, upstream: int, logs: str, limit: int = NEVER_REFUSES) -> Edge:
    """Starts it and waits for its first answer. See `prepare`."""
    edge = prepare(kind, upstream, logs, limit)()
    edge.process.wait_until(lambda: is_answering(edge.plain))
    return edge


def prepare(
    kind: Kind,
    upstream: int,
    logs: str,
    limit: int = NEVER_REFUSES,
    routes: int = 0,
    ports: list[int] | None = None,
) -> Callable[[], Edge]:
    """Writes its configuration, on ports of its own or on these three; what comes back starts it without waiting.

    `logs` is "shipped", "on" or "off"; `limit` is requests a second for each client address; `routes` is
    how many routes there are beside the one for everything.
    """
    run = WORK / "run"
    plain, tls_port, admin = ports or [free_port() for _ in range(3)]
    values = {
        "DIR": run,
        "NAME": kind.name,
        "CONNECTIONS": CONNECTIONS_MAX,
        "PLAIN": plain,
        "TLS": tls_port,
        "ADMIN": admin,
        "UPSTREAM": upstream,
        "LIMIT": limit,
        "CERT": run / "cert.pem",
        "KEY": run / "key.pem",
        "CERT_AND_KEY": run / "cert-and-key.pem",
    }
    tls = values["TLS"] if kind.speaks_tls else None
    access_log = run / f"{kind.name}.access.log"
    argv, is_logging = kind.configure(kind, values, access_log, logs, routes)
    return lambda: Edge(
        kind.name,
        kind.program.version,
        Process(argv, PROXY_CORE, run / f"{kind.name}.log"),
        values["PLAIN"],
        tls,
        access_log if is_logging else None,
    )


def start_upstream() -> tuple[Process, int]:
    """nginx answering 128 bytes from memory, on the core of the load; its port."""
    port = free_port()
    values = {
        "DIR": WORK / "run",
        "CONNECTIONS": CONNECTIONS_MAX,
        "PORT": port,
        "BODY": "x" * BODY_BYTES,
    }
    argv = [*programs.nginx().argv, "-c", str(_fill("upstream.conf", "upstream.conf", values))]
    process = Process(argv, LOAD_CORE, WORK / "run/upstream.log")
    return process.wait_until(lambda: is_answering(port)), port


def make_certificate() -> None:
    """A self-signed P-256 certificate for localhost, the same for every proxy."""
    run = WORK / "run"
    run.mkdir(parents=True, exist_ok=True)
    cert, key = run / "cert.pem", run / "key.pem"
    if not (run / "cert-and-key.pem").exists():
        request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        files = ["-nodes", "-days", "30", "-keyout", str(key), "-out", str(cert)]
        subprocess.run([*request, *names, *files], check=True, capture_output=True)
        (run / "cert-and-key.pem").write_text(cert.read_text() + key.read_text())


def prove_limit(kind: Kind, upstream: int) -> None:
    """Shows that the limit of this configuration is on and counts client addresses apart."""
    edge = start(kind, upstream, "off", limit=3)
    with edge.process:
        first = [_status(edge.plain, "127.0.0.1") for _ in range(20)]
        other = _status(edge.plain, "127.0.0.2")
    if 429 not in first or other != 200:
        raise RuntimeError(f"{kind.name} does not limit by client address: {first}, then another: {other}")


def free_port() -> int:
    """A port nobody listens on and nobody was given, outside the range that outgoing connections are given."""
    while True:
        port = random.randrange(20_000, 32_000)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
            except OSError:
                continue


def _gateway(kind: Kind, values: dict, access_log: Path, logs: str, routes: int) -> tuple[list[str], bool]:
    paths = [f"/r{n}/{{*rest}}" for n in range(routes)] + ["/{*rest}"]
    values["ROUTES"] = "\n".join(_text("gateway.route.toml", values | {"PATH": path}) for path in paths)
    values["ACCESS"] = '{ to = "off" }' if logs == "off" else f'{{ to = "{access_log}" }}'
    config = _fill("gateway.toml", f"{kind.name}.toml", values)
    return [*kind.program.argv, "run", "--config", str(config)], logs != "off"


def _gateway_controlled(
    kind: Kind, values: dict, access_log: Path, logs: str, routes: int
) -> tuple[list[str], bool]:
    """The same beside a database with many policies and overrides, all of them in force."""
    argv, is_logging = _gateway(kind, values, access_log, logs, routes)
    database = WORK / "run/control.db"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    with Path(argv[-1]).open("a") as config:
        config.write(f'\n[database]\nurl = "sqlite:{database}"\n')
    # The gateway makes the tables, and ends.
    with Process(argv, PROXY_CORE, WORK / f"run/{kind.name}.log") as first:
        first.wait_until(lambda: is_answering(values["PLAIN"]))
    _fill_database(database)
    return argv, is_logging


UNSEEN = """
[limits]
hot-keys = false

[node]
header = "never"
"""
TRACED = """
[trace]
otlp = "http://127.0.0.1:@UPSTREAM@"
sample = "1%"
"""
SEEN = f"""
[node]
header = "always"
{TRACED}"""
DECISIONS = 'decisions = {{ to = "@DIR@/@NAME@.decisions.log", sample = "{sample}", denied = "100%" }}'


def _gateway_seen(kind: Kind, values: dict, access_log: Path, logs: str, routes: int) -> tuple[list[str], bool]:
    """With everything on that shows what limits do: hot keys, samples of decisions, traces, the node's name."""
    return _gateway_with(DECISIONS.format(sample="1%"), SEEN, kind, values, access_log, logs, routes)


def _gateway_traced(kind: Kind, values: dict, access_log: Path, logs: str, routes: int) -> tuple[list[str], bool]:
    """With one request in a hundred traced, and nothing else of that."""
    return _gateway_with("decisions = false", UNSEEN + TRACED, kind, values, access_log, logs, routes)


def _gateway_unseen(kind: Kind, values: dict, access_log: Path, logs: str, routes: int) -> tuple[list[str], bool]:
    """With nothing of it. The access log stays: it is what others are measured beside."""
    return _gateway_with("decisions = false", UNSEEN, kind, values, access_log, logs, routes)


def _gateway_with(
    decisions: str, added: str, kind: Kind, values: dict, access_log: Path, logs: str, routes: int
) -> tuple[list[str], bool]:
    argv, is_logging = _gateway(kind, values, access_log, logs, routes)
    config = Path(argv[-1])
    # `[log]` is the last table of the shared configuration.
    config.write_text(_replaced(f"{config.read_text().rstrip()}\n{decisions}\n{added}", values))
    return argv, is_logging


def _fill_database(database: Path) -> None:
    now = int(time.time() * 1e6)
    policies = [
        (f"policy-{n}", json.dumps({"limit": f"{n + 1}/m", "by": ["consumer"]}), now)
        for n in range(CONTROLLED_POLICIES)
    ]
    overrides = [
        (f"override-{n}", f"consumer-{n}", f"policy-{n % CONTROLLED_POLICIES}", n + 1, now)
        for n in range(CONTROLLED_OVERRIDES)
    ]
    with sqlite3.connect(database) as rows:
        rows.executemany(
            "INSERT INTO policies (id, document, version, updated_at, updated_by) VALUES (?, ?, 1, ?, 'bench')",
            policies,
        )
        rows.executemany(
            "INSERT INTO rate_limit_overrides (id, user_id, policy, override_type, value, reason, created_at, "
            "created_by, version) VALUES (?, ?, ?, 'absolute', ?, 'bench', ?, 'bench', 1)",
            overrides,
        )
        rows.execute("UPDATE control_version SET version = 1")
    rows.close()


def _nginx(kind: Kind, values: dict, access_log: Path, logs: str, routes: int) -> tuple[list[str], bool]:
    paths = [f"/r{n}/" for n in range(routes)] + ["/"]
    values["LOCATIONS"] = "".join(_text("nginx.location.conf", values | {"PATH": path}) for path in paths)
    values["ACCESS"] = "off" if logs == "off" else access_log
    config = _fill("nginx.conf", f"{kind.name}.conf", values)
    return [*kind.program.argv, "-c", str(config)], logs != "off"


def _haproxy(kind: Kind, values: dict, access_log: Path, logs: str, _routes: int) -> tuple[list[str], bool]:
    # Its only way into a file is a descriptor it was given: its standard output, which `sh` redirects.
    values["LOG_TARGET"] = "    log stdout format raw local0" if logs == "on" else ""
    values["LOG_FORMAT"] = "    log global\n    option httplog" if logs == "on" else ""
    argv = [*kind.program.argv, "-db", "-f", str(_fill("haproxy.cfg", f"{kind.name}.cfg", values))]
    if logs == "on":
        return ["sh", "-c", 'exec "$@" >>"$0"', str(access_log), *argv], True
    return argv, False


def _envoy(kind: Kind, values: dict, access_log: Path, logs: str, _routes: int) -> tuple[list[str], bool]:
    log_type = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
    typed = f'{{ "@type": {log_type}, path: {access_log} }}'
    values["ACCESS"] = f"          access_log: [{{ name: file, typed_config: {typed} }}]" if logs == "on" else ""
    config = _fill("envoy.yaml", f"{kind.name}.yaml", values)
    switches = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    return [*kind.program.argv, "-c", str(config), *switches], logs == "on"


def _relay(kind: Kind, values: dict, _access_log: Path, _logs: str, _routes: int) -> tuple[list[str], bool]:
    listen, upstream = (f"127.0.0.1:{values[port]}" for port in ("PLAIN", "UPSTREAM"))
    return [*kind.program.argv, listen, upstream], False


def _text(template: str, values: dict) -> str:
    return _replaced((CONF / template).read_text(), values)


def _replaced(text: str, values: dict) -> str:
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _fill(template: str, name: str, values: dict) -> Path:
    path = WORK / "run" / name
    path.write_text(_text(template, values))
    return path


def is_answering(port: int) -> bool:
    """Whether somebody answers a GET at this port with 200."""
    try:
        return _status(port, "127.0.0.1") == 200
    except (OSError, http.client.HTTPException):
        return False


def _status(port: int, source: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2, source_address=(source, 0))
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()
