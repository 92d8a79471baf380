"""Makes a client of the OpenAPI document, which must be valid, and calls each operation once with it.

Arguments: the admin listener's address, its token, the id of a request that a limit refused, a folder to work in. Bodies are
the examples of the document; only what must be there has the name that it has in the gateway's configuration.
"""

import importlib
import json
import pathlib
import subprocess
import sys
import urllib.request

import openapi_spec_validator

address, token, request_id, folder = sys.argv[1:]
folder = pathlib.Path(folder)
asked = urllib.request.Request(f"http://{address}/v1/openapi.json", headers={"authorization": f"Bearer {token}"})
with urllib.request.urlopen(asked) as answer:
    document = json.load(answer)
openapi_spec_validator.validate(document)

(folder / "openapi.json").write_text(json.dumps(document))
(folder / "client.yaml").write_text("post_hooks: []")
generated = subprocess.run(
    [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none",
     "--config", "client.yaml", "--output-path", "generated", "--fail-on-warning"],
    cwd=folder, capture_output=True, text=True)
assert generated.returncode == 0, generated.stdout + generated.stderr
sys.path.insert(0, str(folder))
client = importlib.import_module("generated").AuthenticatedClient(base_url=f"http://{address}", token=token)
models = importlib.import_module("generated.models")

# What values of paths and bodies are, and ids of rows by the path that made them.
names = {"policy": "calls", "policyId": "calls", "action": "calls", "resource": "calls", "tier": "pro",
         "kind": models.HolderKind("consumer"), "request-id": request_id}
made = {}


def body_of(operation):
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if not content:
        return {}
    schema = content["schema"]["$ref"].rsplit("/", 1)[1]
    # A body that may be of several types has the example of the first.
    several = document["components"]["schemas"][schema].get("anyOf", [content["schema"]])
    model = getattr(models, several[0]["$ref"].rsplit("/", 1)[1])
    example = {name: names.get(name, value) for name, value in content["example"].items()}
    return {"body": model.from_dict(example)}


order = ["post", "put", "patch", "get", "delete"]
operations = [(order.index(method), path, operation)
              for path, item in document["paths"].items() for method, operation in item.items()]
for place, path, operation in sorted(operations, key=lambda one: one[:2]):
    arguments = body_of(operation)
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            name = parameter["name"]
            arguments[name.replace("-", "_")] = made.get(path.split("/{")[0]) or names.get(name, "alice")
    module = f"{operation['tags'][0]}.{operation['operationId']}".replace("-", "_")
    answer = importlib.import_module(f"generated.api.{module}").sync_detailed(client=client, **arguments)
    status = int(answer.status_code)
    said = f"{order[place]} {path}: {status} {answer.content}"
    assert status in (200, 201, 204) and str(status) in operation["responses"], said
    assert answer.parsed is not None or status == 204, said
    if status == 201:
        row = json.loads(answer.content)
        made[path] = row.get("digest") or row["id"]
print(f"{len(operations)} calls")
