"""The part of the command line that the three benchmarks share: which proxies, and which gateway."""

import argparse
from pathlib import Path


def parser(description: str, names: list[str]) -> argparse.ArgumentParser:
    """A parser that knows `--only` some of `names`, and `--gateway`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", type=subset(names), default=names, help=f"some of {','.join(names)}")
    made.add_argument("--gateway", type=Path, help="a built gateway (default: cargo build --profile dist)")
    return made


def subset(known: list[str]):
    """Reads names joined by commas; one that is not `known` is a usage error."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
        return chosen

    return parse
