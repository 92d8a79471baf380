"""A server process on one core: started, asked what it has cost so far, stopped by its own id.

It knows nothing of proxies or load, and it never signals a process it did not start.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

READY_WITHIN_SECONDS = 20
STOP_WITHIN_SECONDS = 5


@dataclass(frozen=True)
class Cpu:
    """CPU time a process and its children have had: nanoseconds in all, and clock ticks by mode."""

    total_ns: int
    user_ticks: int
    system_ticks: int

    def since(self, earlier: "Cpu") -> "Cpu":
        return Cpu(
            self.total_ns - earlier.total_ns,
            self.user_ticks - earlier.user_ticks,
            self.system_ticks - earlier.system_ticks,
        )

    @property
    def user_share(self) -> float:
        """The kernel splits precise run time by ticks, so only the share is taken from them."""
        return self.user_ticks / max(1, self.user_ticks + self.system_ticks)


class Process:
    """One program with its workers, pinned to `core`, its output appended to `log`."""

    def __init__(self, argv: list[str], core: int | None, log: Path, env: dict[str, str] | None = None):
        self.argv = argv
        self.log = log
        # setpriv: should this script be killed outright, the server is told to end as well.
        wrapper = ["setpriv", "--pdeathsig", "TERM"]
        if core is not None:
            wrapper = ["taskset", "--cpu-list", str(core), *wrapper]
        with open(log, "ab") as output:
            self.child = subprocess.Popen(
                [*wrapper, *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=None if env is None else os.environ | env,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def wait_until(self, is_ready) -> "Process":
        """Polls `is_ready` until it is true; stops the process and raises when it ends or takes too long."""
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while not is_ready():
            if self.child.poll() is not None or time.monotonic() > deadline:
                self.stop()
                tail = self.log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{' '.join(self.argv)} did not come up:\n{tail}")
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """Asks it to end, then ends its own process group (it leads one)."""
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(STOP_WITHIN_SECONDS)
                return
            except subprocess.TimeoutExpired:
                os.killpg(self.child.pid, signal.SIGKILL)
                self.child.wait()

    def ids(self) -> list[int]:
        """Its id and those of all processes under it."""
        found, unseen = [], [self.child.pid]
        while unseen:
            pid = unseen.pop()
            found.append(pid)
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                unseen += [int(child) for child in _read(children).split()]
        return found

    def cpu(self) -> Cpu:
        """CPU time so far of every thread alive now."""
        total_ns = user_ticks = system_ticks = 0
        for pid in self.ids():
            for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                total_ns += int((_read(schedstat) or "0").split()[0])
            # The name in parentheses may hold spaces; the fields after it are user and system at 11, 12.
            fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
            if fields:
                user_ticks += int(fields[11])
                system_ticks += int(fields[12])
        return Cpu(total_ns, user_ticks, system_ticks)

    def rss_bytes(self) -> int:
        """Resident memory of all its processes; pages they share count once for each."""
        pages = 0
        for pid in self.ids():
            pages += int((_read(Path(f"/proc/{pid}/statm")) or "0 0").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def core_busy_seconds(core: int) -> float:
    """How long `core` has not been idle since the machine started, whoever used it."""
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _iowait, irq, softirq = (int(tick) for tick in ticks[:7])
            return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    raise RuntimeError(f"there is no core {core}")


def prepare() -> None:
    """Lets this script and its servers open all the files they may; makes TERM and HUP an ordinary exit.

    An ordinary exit stops the servers on the way out.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: sys.exit(128 + got))


def _read(path: Path) -> str:
    """The file's text, or nothing when the process behind it has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
