"""Checks every object of a Kubernetes manifest against the API's schemas, unknown fields included, and prints them as JSON."""

import json
import sys

import kubernetes_validate
import yaml

with open(sys.argv[1], encoding="utf-8") as file:
    objects = list(yaml.safe_load_all(file))
for item in objects:
    kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)
print(json.dumps(objects))
