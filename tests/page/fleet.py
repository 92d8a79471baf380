"""Two nodes over one Redis, on the page of either. ADMIN GATEWAY OTHER_GATEWAY OTHER_ADMIN"""

import sys

from playwright.sync_api import expect

from browser import ask, chromium, opened, picture

admin, gateway, other_gateway, other_admin = sys.argv[1:5]
# A node tells the others every five seconds, and hears them as often.
WITHIN_MS = 40_000

with chromium() as browser:
    for node, asked in [(admin, other_gateway), (other_admin, gateway)]:
        with opened(browser, node) as page:
            page.open().is_live()
            expect(page.at("#fleet tbody")).to_contain_text("edge-1", timeout=WITHIN_MS)
            expect(page.at("#fleet tbody")).to_contain_text("edge-2", timeout=WITHIN_MS)
            assert page.at("#fleet tbody tr").count() == 2
            expect(page.at("#redis tbody")).to_contain_text("up")
            # What the other node refuses is shown here.
            for turn in range(20):
                for _ in range(10):
                    ask(asked + "/a", headers={"x-user": "k"})
                page.page.wait_for_timeout(1000)
                if page.at("#fleet-policies tbody .bad").count():
                    break
            expect(page.at("#fleet-policies tbody")).to_contain_text("calls")
            assert page.at("#fleet-policies tbody .bad").count(), "its refusals are not shown"
            picture(page, "fleet")
            page.has_no_faults()
print("together")
