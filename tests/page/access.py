"""The page with tokens: signing in, an expired one, roles, and what may be changed. ADMIN GATEWAY EXPIRES"""

import sys
import time

from playwright.sync_api import expect

from browser import SOON_MS, ask, chromium, opened, picture

admin, gateway, expires = sys.argv[1], sys.argv[2], float(sys.argv[3])

# Without a token there are the page's own files, and nothing else.
for path, wanted in [("/page/page.js", 200), ("/page/nothing.js", 404), ("/v1/live", 401), ("/v1/whoami", 401), ("/config", 401)]:
    assert ask(admin + path)[0] == wanted, path
assert ask(admin + "/", headers={"Accept": "text/html"})[0] == 200
assert ask(admin + "/")[0] == 401, "the list of endpoints is for who may see one"
status, fields, _ = ask(admin + "/page/page.js")
assert ask(admin + "/page/page.js", headers={"If-None-Match": fields["etag"]})[0] == 304

with chromium() as browser:
    # First, while it lasts: a page that is open when its token ends asks for another.
    with opened(browser, admin) as page:
        page.open()
        expect(page.at("#sign-in")).to_be_visible()
        expect(page.at("#figures")).to_be_hidden()
        page.sign_in("no such token")
        expect(page.at("#sign-in-why")).to_contain_text("send one of [admin]")
        picture(page, "sign-in")
        page.sign_in("short-lived")
        page.is_live()
        expect(page.at("#who")).to_have_text("brief, role read")
        expect(page.at("#change")).to_contain_text("brief has the role read")
        assert page.at("#change form").count() == 0
        expect(page.at("#sign-in")).to_be_visible(timeout=max(0, expires - time.time()) * 1000 + SOON_MS)
        assert time.time() >= expires - 1
        expect(page.at("#sign-in-why")).to_contain_text("has expired")
        assert page.page.evaluate("sessionStorage.length") == 0
        picture(page, "expired")
        page.has_no_faults()

    with opened(browser, admin) as page:
        page.open()
        page.sign_in("may-operate")
        page.is_live()
        # It survives a reload of the tab, and is in no other place.
        page.page.reload()
        page.is_live()
        assert page.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        expect(page.at("#change")).to_contain_text("There are no overrides.", timeout=SOON_MS)
        for kind in ["block", "unlimited"]:
            body = {"subject": "ip=192.0.2.7", "override-type": kind, "reason": "a scraper"}
            assert ask(admin + "/v1/overrides", "POST", body, {"Authorization": "Bearer may-operate"})[0] == 201
        page.page.reload()
        page.is_live()
        for words in ["unlimited", "blocked with 403"]:
            row = page.at("#change tbody tr").filter(has_text=words)
            expect(row).to_contain_text("ip=192.0.2.7", timeout=SOON_MS)
            row.get_by_role("button", name="Delete the override for ip=192.0.2.7").click()
            expect(row).to_have_count(0, timeout=SOON_MS)
            assert f"ip=192.0.2.7 ({words})" in page.dialogs[-1], page.dialogs
        page.page.get_by_label("Consumer", exact=True).first.fill("alice")
        page.at("#add-value").fill("5")
        page.at("#add-reason").fill("a trial <b>today</b>")
        page.at("#add-duration").fill("1h")
        page.page.get_by_role("button", name="Add", exact=True).click()
        expect(page.at("#change [role=status]")).to_have_text("The override for alice is in force.", timeout=SOON_MS)
        expect(page.at("#change tbody")).to_contain_text("a trial <b>today</b>")
        picture(page, "changed")
        # What the gateway refuses is said in its words.
        page.at("#add-user-id").fill("alice")
        page.at("#add-value").fill("-1")
        page.at("#add-reason").fill("x")
        page.page.get_by_role("button", name="Add", exact=True).click()
        expect(page.at("#change [role=status]")).to_have_class("bad")
        page.at("#reset-id").fill("alice")
        page.at("#reset-reason").fill("a support case")
        page.page.get_by_role("button", name="Reset", exact=True).click()
        expect(page.at("#change [role=status]")).to_have_text("The counts of alice are reset.", timeout=SOON_MS)
        page.at("#assign-id").fill("alice")
        page.at("#assign-tier").fill("pro")
        page.page.get_by_role("button", name="Assign", exact=True).click()
        expect(page.at("#change [role=status]")).to_have_text("alice has the tier pro.", timeout=SOON_MS)
        page.page.get_by_role("button", name="Delete the override for alice").click()
        expect(page.at("#change")).to_contain_text("There are no overrides.", timeout=SOON_MS)
        assert len(page.dialogs) == 4, page.dialogs
        assert "alice" in page.page.content()
        page.page.get_by_role("button", name="Sign out").click()
        expect(page.at("#sign-in")).to_be_visible()
        expect(page.at("#figures")).to_be_hidden()
        assert "alice" not in page.page.content(), "it shows nothing, and has nothing"
        assert page.page.evaluate("sessionStorage.length") == 0
        page.has_no_faults()
print("accessed")
