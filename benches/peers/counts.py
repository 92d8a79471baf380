"""The compiler's counts of a run, merged into what it reads them from.

The compiler's own llvm-profdata does that, where it is installed (rustup component llvm-tools). Debian's is of an older
LLVM and cannot read these counts, but a profile in LLVM's text format; what it writes is read by every later one. So
the counts are put into that format here. Where calls through pointers led is left out.
"""

import hashlib
import struct
import sys
import zlib
from pathlib import Path

import programs

MAGIC = 0xFF6C70726F667281
VERSION = 10
HEADER = struct.Struct("<16Q")
RECORD = struct.Struct("<6QI3H2xI")
"""Hashes of name and code, where the counts are; bitmap, address, values; how many counts, values, bits."""


def merge(raw: list[Path], merged: Path) -> Path:
    """Merges the counts of `raw` into `merged`."""
    if not raw:
        raise programs.Missing("the gateway left no counts when it ended")
    own = programs.llvm_profdata()
    if own is not None:
        programs.run([str(own), "merge", "-o", str(merged), *map(str, raw)])
        return merged
    text = merged.with_suffix(".proftext")
    text.write_text(as_text(raw))
    programs.debian("llvm-profdata")
    programs.run(["llvm-profdata", "merge", "-o", str(merged), str(text)])
    return merged


def as_text(raw: list[Path]) -> str:
    """LLVM's text format: of each function its name, its code's hash and its counts."""
    functions: dict[tuple[str, int], list[int]] = {}
    for path in raw:
        for name, code, counts in _functions(path):
            before = functions.get((name, code), [0] * len(counts))
            functions[name, code] = [one + other for one, other in zip(before, counts, strict=True)]
    parts = [":ir"]
    for (name, code), counts in functions.items():
        parts += [name, str(code), str(len(counts)), *map(str, counts), ""]
    return "\n".join(parts) + "\n"


def _functions(path: Path):
    """What one file of counts holds (LLVM's InstrProfData.inc, version 10)."""
    data = path.read_bytes()
    (magic, version, ids, records, before, counters, after, bits, after_bits, names, delta, *_) = HEADER.unpack_from(data)
    if (magic, version & 0xFF) != (MAGIC, VERSION):
        raise programs.Missing(f"counts of version {version & 0xFF}, not {VERSION}: rustup component add llvm-tools")
    first_record = HEADER.size + ids
    first_counter = first_record + records * RECORD.size + before
    first_name = first_counter + counters * 8 + after + bits + after_bits
    name_of = dict(_names(data[first_name : first_name + names]))
    for index in range(records):
        fields = RECORD.unpack_from(data, first_record + index * RECORD.size)
        name, code, counter, count = fields[0], fields[1], fields[2], fields[6]
        # Relative to the record it stands in.
        at = (counter - delta + index * RECORD.size) & (1 << 64) - 1
        if name in name_of and count and at < counters * 8:
            yield name_of[name], code, struct.unpack_from(f"<{count}Q", data, first_counter + at)


def _names(section: bytes):
    """Names by their hashes, out of compressed or plain blocks."""
    at = 0
    while at < len(section):
        if section[at] == 0:
            at += 1
            continue
        plain, at = _number(section, at)
        packed, at = _number(section, at)
        block = section[at : at + (packed or plain)]
        at += len(block)
        for name in (zlib.decompress(block) if packed else block).split(b"\x01"):
            yield int.from_bytes(hashlib.md5(name).digest()[:8], "little"), name.decode()


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number in LEB128, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


if __name__ == "__main__":
    sys.stdout.write(as_text([Path(argument) for argument in sys.argv[1:]]))
