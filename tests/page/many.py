"""The page over 10,000 routes with a policy each. ADMIN GATEWAY"""

import sys
import urllib.request

from playwright.sync_api import expect

from browser import SOON_MS, ask, chromium, opened, picture

admin, gateway = sys.argv[1:3]

with urllib.request.urlopen(admin + "/v1/live", timeout=30) as live:
    line = live.readline()
assert len(line) < 64 * 1024, len(line)

with chromium() as browser, opened(browser, admin) as page:
    page.open().is_live()
    for route in range(60):
        assert [ask(f"{gateway}/r{route}")[0] for _ in range(2)] == [200, 429]
    expect(page.at("#policies tbody tr.others")).to_contain_text("other policies", timeout=SOON_MS)
    assert page.at("#policies tbody tr").count() == 21
    assert page.at("#routes tbody tr").count() <= 21
    expect(page.at("#configuration")).to_contain_text("10,000 routes")
    picture(page, "many")
    page.has_no_faults()
print("many")
