"""Reads dashboards, named by their files, into the types that Grafana Labs make of Grafana's schema (grafana-foundation-sdk), and prints what of them gets lost or changes on the way: fields that Grafana does not know, and values that it would not take."""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def differences(place, ours, theirs):
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key not in theirs:
                # What is empty may be left out.
                if value not in ({}, [], "", None, False):
                    yield f"{place}.{key} is unknown"
            else:
                yield from differences(f"{place}.{key}", value, theirs[key])
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs)):
            yield from differences(f"{place}[{index}]", one, other)
    elif ours != theirs:
        yield f"{place} is {ours!r}, and {theirs!r} once read"


register_default_plugins()
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        ours = json.load(file)
    theirs = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(ours)))
    for difference in differences(name.rsplit("/", 1)[-1], ours, theirs):
        print(difference)
