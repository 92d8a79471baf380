"""All overrides with a filter, and what must not be cut at a desktop's and a phone's width. ADMIN GATEWAY"""

import sys
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import expect

from browser import SOON_MS, ask, chromium, opened, picture

admin, gateway = sys.argv[1:3]
COUNT = 1100


def override(number):
    body = {"user-id": f"user-{number}", "override-type": "absolute", "value": number + 1, "reason": f"case {number}"}
    status, _, text = ask(f"{admin}/v1/overrides", "POST", body, {"Authorization": "Bearer may-operate"})
    assert status == 201, text


def is_within(page, panel, cell):
    """Whether the whole of a cell is seen without scrolling its panel."""
    return page.page.evaluate(
        """([panel, cell]) => {
            const [outer, inner] = [document.querySelector(panel), document.querySelector(cell)];
            const [frame, text] = [outer.getBoundingClientRect(), inner.getBoundingClientRect()];
            return text.right <= frame.right + 1 && text.left >= frame.left - 1 && text.width >= 100;
        }""",
        [panel, cell],
    )


# Changes that come together are written together; which is the first and which the last of them stays known.
override(0)
with ThreadPoolExecutor(16) as at_once:
    list(at_once.map(override, range(1, COUNT - 1)))
override(COUNT - 1)

with chromium() as browser:
    for width in [420, 700, 1000, 1280, 1400]:
        with opened(browser, admin, viewport={"width": width, "height": 900}) as page:
            page.open()
            page.sign_in("may-operate")
            page.is_live()
            assert ask(gateway + "/gone")[0] in (502, 503)
            for _ in range(3):
                ask(gateway + "/a", headers={"x-user": "alice"})
            expect(page.at("#upstreams")).to_contain_text("refused", timeout=SOON_MS)
            expect(page.at("#recent")).to_contain_text("calls: 2 per hour, 1 at once", timeout=SOON_MS)
            assert is_within(page, "#upstreams", "#upstreams tbody tr td:last-child"), f"the failure is cut at {width}"
            if width in (420, 1280, 1400):
                assert is_within(page, "#recent", "#recent tbody tr td:nth-child(3)"), f"the reason is cut at {width}"
            picture(page, f"width-{width}")
            page.has_no_faults()

    with opened(browser, admin) as page:
        page.open()
        page.sign_in("may-operate")
        page.is_live()
        rows = page.at("#change tbody tr")
        expect(rows).to_have_count(COUNT, timeout=SOON_MS)
        expect(rows.first).to_contain_text(f"user-{COUNT - 1}")
        expect(rows.last).to_contain_text("user-0")
        page.page.get_by_label("Show only overrides with this name").fill("USER-77")
        # user-77 and user-770 to user-779.
        expect(rows).to_have_count(11)
        expect(rows.filter(has_text="user-77")).to_have_count(11)
        expect(page.at("#overrides-shown")).to_have_text("11 of 1,100")
        page.page.get_by_label("Show only overrides with this name").fill("case 1099")
        expect(rows).to_have_count(1)
        page.page.get_by_label("Show only overrides with this name").fill("nobody")
        expect(page.at("#change")).to_contain_text("No override matches this text.")
        page.has_no_faults()
print("shown")
