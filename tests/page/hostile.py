"""Names that are markup, shown as text. ADMIN GATEWAY"""

import json
import sys

from playwright.sync_api import expect

from browser import SOON_MS, ask, chromium, opened, picture

admin, gateway = sys.argv[1:3]

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "\"><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "\u202e\u0000\u001b[2J",
]

with chromium() as browser:
    with opened(browser, admin) as page:
        # What a gateway says may be as hostile as its clients: every text of an event and of each answer.
        def poisoned(value, index=0):
            if isinstance(value, dict):
                return {key: (one if key in ("seconds", "at") else poisoned(one, index + place)) for place, (key, one) in enumerate(value.items())}
            if isinstance(value, list):
                return [poisoned(one, index + place) for place, one in enumerate(value)]
            return HOSTILE[index % len(HOSTILE)] if isinstance(value, str) else value

        event = {}

        def live(route):
            body = "data: " + json.dumps(event) + "\n\n"
            route.fulfill(content_type="text/event-stream", body=body)

        def answer(route):
            items = [poisoned({
                "key": "k", "policy": "p", "requests-per-second": 2.0, "denied-per-second": 1.0, "of-policy": 0.5, "hot": True,
                "request-id": "id", "time": "2026-01-01T00:00:00Z", "admitted": False, "reason": "r",
                "user-id": "u", "tenant-id": "t", "override-type": "absolute", "value": 1, "created-by": "b", "expires-at": "e",
                "windows": [{"policy": "p", "key": "k", "limit": 1, "period-ms": 1000}],
            }, place) for place in range(len(HOSTILE))]
            route.fulfill(json={"items": items, "text": HOSTILE[0] + HOSTILE[1], "minutes": 1})

        page.open().is_live()
        event = page.page.evaluate("""async () => {
            const reader = (await fetch("/v1/live")).body.getReader();
            const text = new TextDecoder().decode((await reader.read()).value);
            reader.cancel();
            return JSON.parse(text.slice(6));
        }""")
        name = {"name": "x", "limits": ["l"], "per-second": 5.0, "denied": 2.0, "admitted": 3.0, "4xx": 1.0, "5xx": 1.0}
        event.update(
            seconds=1.0,
            policies={"busiest": [dict(name) for _ in HOSTILE], "others": {"count": 0}},
            routes={"busiest": [dict(name) for _ in HOSTILE], "others": {"count": 0}},
            refusals=[{"reason": "r", "per-second": 1.0, "total": 1} for _ in HOSTILE],
            upstreams={"first": [{"name": "u", "servers": 1, "healthy": 0, "all-used": True, "first": [
                {"server": "s", "state": "unhealthy", "failure": "f", "open": 0, "idle": 0, "waiting": 0}]} for _ in HOSTILE], "others": 0},
            redis=[{"shard": "s", "server": "x", "version": "v", "condition": "c", "up": False, "operations": 1.0} for _ in HOSTILE],
            database="d",
        )
        event["configuration"]["last-reload"] = {"at": 1, "in-force": False, "said": "s"}
        event = poisoned(event)
        page.page.route("**/v1/live", live)
        for path in ["**/v1/hot-keys*", "**/v1/decisions**", "**/v1/overrides*", "**/v1/explain*"]:
            page.page.route(path, answer)
        page.page.reload()
        expect(page.at("#policies tbody tr")).to_have_count(len(HOSTILE), timeout=SOON_MS)
        expect(page.at("#hot-keys tbody tr")).to_have_count(len(HOSTILE), timeout=SOON_MS)
        expect(page.at("#recent tbody tr")).to_have_count(len(HOSTILE), timeout=SOON_MS)
        page.at("#recent tbody button").first.click()
        expect(page.at("#found pre")).to_contain_text("<script>")
        page.at("#policies tbody button").first.click()
        page.page.wait_for_timeout(500)
        assert page.dialogs == [], page.dialogs
        for markup in ["main img", "main script", "main svg[onload]", "main b b", "[onerror]", "[onload]", "main a"]:
            assert page.at(markup).count() == 0, markup
        assert HOSTILE[0] in page.at("#policies").inner_text() + page.at("#routes").inner_text()
        picture(page, "hostile")
        page.has_no_faults()
print("harmless")
