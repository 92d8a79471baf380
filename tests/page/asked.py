"""The facts that are asked beside the stream: a refusal by its id, and hot keys. ADMIN GATEWAY"""

import sys

from playwright.sync_api import expect

from browser import SOON_MS, ask, chromium, opened, picture

admin, gateway = sys.argv[1:3]

with chromium() as browser, opened(browser, admin) as page:
    page.open().is_live()
    for _ in range(50):
        status, fields, _ = ask(gateway + "/a", headers={"x-user": "<b>alice</b>"})
    assert status == 429
    expect(page.at("#hot-keys tbody")).to_contain_text("<b>alice</b>", timeout=SOON_MS)
    if ask(admin + "/v1/decisions")[0] == 200:
        # Its id is all that somebody has.
        page.at("#request-id").fill(fields["x-request-id"])
        page.at("#request-id").press("Enter")
        expect(page.at("#found pre")).to_contain_text("calls", timeout=SOON_MS)
        page.at("#recent tbody button").first.click()
        expect(page.at("#found pre")).to_contain_text("calls", timeout=SOON_MS)
        page.at("#request-id").fill("no-such-id")
        page.at("#request-id").press("Enter")
        expect(page.at("#found")).to_contain_text("no decision about this request")
    picture(page, "asked")
    page.has_no_faults()
print("asked")
