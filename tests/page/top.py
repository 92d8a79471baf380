"""`sluicegate top` in a pseudo-terminal. BINARY URL GATEWAY"""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import pyte

from browser import ask

binary, url, gateway = sys.argv[1:4]
WITHIN = 30


class Terminal:
    """A program at a terminal of this size, and what is on its screen."""

    def __init__(self, columns, lines, arguments):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.written = b""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = dict(os.environ, TERM="xterm-256color")
        self.child = subprocess.Popen(
            [binary, "top", *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True)
        os.close(slave)

    def text(self):
        return "\n".join(self.screen.display)

    def turn(self):
        if select.select([self.master], [], [], 0.1)[0]:
            try:
                written = os.read(self.master, 65536)
            except OSError:
                return
            self.written += written
            self.stream.feed(written)

    def comes_to(self, holds, what):
        until = time.monotonic() + WITHIN
        while not holds(self.screen.display):
            assert time.monotonic() < until, f"not {what}:\n{self.text()}"
            self.turn()

    def shows(self, *wanted):
        self.comes_to(lambda _: all(one in self.text() for one in wanted), wanted)
        return self.text()

    def closes_the_answer(self):
        """A key that comes close behind Escape would be read as one with it."""
        self.type("\x1b")
        self.comes_to(lambda _: "Response" not in self.text(), "closed")

    def type(self, keys):
        os.write(self.master, keys.encode())

    def leaves(self):
        until = time.monotonic() + WITHIN
        while self.child.poll() is None:
            assert time.monotonic() < until, f"it does not end:\n{self.text()}"
            self.turn()
        # What it wrote last.
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.written += os.read(self.master, 65536)
            except OSError:
                break
        os.close(self.master)
        return self.child.returncode


for columns, lines in [(80, 24), (200, 60)]:
    terminal = Terminal(columns, lines, ["--url", url])
    terminal.shows("sluicegate", "live", "ready", "requests/s", "Policies")
    refused = [ask(gateway + "/a", headers={"x-user": f"at {columns}"})[0] for _ in range(8)]
    assert refused.count(429) == 7, refused
    shown = terminal.shows("calls", "refused/s")
    assert max(len(line.rstrip()) for line in terminal.screen.display) <= columns
    if columns == 80:
        # One pane after the other, and round to the first.
        for pane in ["no key", "request", "no upstream is configured", "does not share its limits", "requests/s", "admitted/s"]:
            terminal.type("\t")
            terminal.turn()
        terminal.shows("admitted/s")
    else:
        terminal.shows("Hot keys", "Refusals", "Upstreams", "Redis", "Routes", "does not share its limits", "no upstream is configured")
    terminal.type("e")
    terminal.shows("explain (as GET /path):")
    terminal.type("get /a\r")
    terminal.shows("Response", "route")
    terminal.closes_the_answer()
    terminal.type("/no-such-id\r")
    terminal.shows("Response", "no")
    terminal.closes_the_answer()
    # A key that is not UTF-8, or none at all, ends nothing.
    terminal.type("zZ?")
    # Another size while it runs.
    fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    terminal.screen.resize(30, 100)
    os.kill(terminal.child.pid, 28)
    terminal.shows("Policies", "live")
    # A key that comes together with the signal is read with the next one only.
    terminal.comes_to(lambda display: "q quit" in display[29], "of the new size")
    terminal.type("q")
    assert terminal.leaves() == 0
    # The terminal is as it was: the other screen is left, and the cursor is back.
    assert b"\x1b[?1049l" in terminal.written and b"\x1b[?25h" in terminal.written

terminal = Terminal(80, 24, ["--url", "http://127.0.0.1:1"])
terminal.shows("no gateway answers", "no data yet: the gateway has not answered")
terminal.type("\x03")
assert terminal.leaves() == 0

# A terminal that is closed, with no word to the program.
terminal = Terminal(80, 24, ["--url", url])
terminal.shows("live")
os.close(terminal.master)
assert terminal.child.wait(WITHIN) == 129

without = subprocess.run([binary, "top", "--url", url], stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN)
assert without.returncode == 2 and b"needs a terminal" in without.stderr, without
print("topped")
