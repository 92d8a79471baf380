"""The page without a token: it loads, follows, explains, and says what it has nothing of. ADMIN GATEWAY"""

import re
import sys
import time

from playwright.sync_api import expect

from browser import SOON_MS, ask, chromium, opened, picture

admin, gateway = sys.argv[1:3]

status, headers, text = ask(admin + "/", headers={"Accept": "text/html"})
assert status == 200 and "default-src 'none'" in headers["content-security-policy"], headers
assert "unsafe" not in headers["content-security-policy"]
assert ask(admin + "/")[2].startswith("/ "), "other clients get the list of endpoints"


def send(path, count, **fields):
    return [ask(gateway + path, headers=fields)[0] for _ in range(count)]


with chromium() as browser:
    with opened(browser, admin) as page:
        page.open().is_live()
        expect(page.at("#sign-in")).to_be_hidden()
        expect(page.at("#who")).to_have_text("role read")
        # Nothing has happened: each panel says so, or how to get something to show.
        for panel, said in [
            ("#routes", "No request came"),
            ("#reasons", "No request has been refused"),
            ("#redis", "[redis] url ="),
            ("#change", "[database] url ="),
            ("#upstreams", "No upstream is configured"),
        ]:
            expect(page.at(panel)).to_contain_text(said)
        expect(page.at("#policies tbody th")).to_have_text("calls")
        expect(page.at("#policies tbody")).to_contain_text("2/h burst 1 (at most 3 in one period")
        picture(page, "empty")

        # One is let through, eleven are refused, and the page says so within two seconds.
        assert send("/a", 12, **{"x-user": "alice"}) == [200] + [429] * 11
        begun = time.monotonic()
        expect(page.at("#policies tbody tr td").last).to_have_text("11", timeout=SOON_MS)
        took = time.monotonic() - begun
        assert took < 2.0, f"shown after {took:.2f} s"
        expect(page.at("#reasons")).to_contain_text("limited", timeout=SOON_MS)

        # An explanation, by keyboard alone.
        page.at("#explain-url").focus()
        page.page.keyboard.press("Control+A")
        page.page.keyboard.type("/a?b=1")
        page.at("#explain-headers").fill("x-user: bob")
        page.at("#explain-url").press("Enter")
        expect(page.at("#explained")).to_contain_text("calls", timeout=SOON_MS)
        page.at("#explain-url").fill("nowhere")
        page.at("#explain-url").press("Enter")
        expect(page.at("#explained")).to_contain_text("neither an http URL nor a path")

        # Choosing a policy filters what is beneath, and can be taken back.
        page.page.get_by_role("button", name="Show keys and refusals of calls").press("Enter")
        expect(page.at("#policy-filtered")).to_have_text("calls")
        page.page.get_by_role("button", name="Show all").press("Enter")
        expect(page.at("#policy-filter")).to_be_hidden()

        # Nobody sees a hidden page, and it asks for nothing.
        page.page.evaluate("""() => {
            Object.defineProperty(document, 'hidden', { value: true, configurable: true });
            document.dispatchEvent(new Event('visibilitychange'));
        }""")
        expect(page.at("#connection")).to_have_text("paused")
        page.page.evaluate("""() => {
            Object.defineProperty(document, 'hidden', { value: false, configurable: true });
            document.dispatchEvent(new Event('visibilitychange'));
        }""")
        page.is_live()
        expect(page.at("#phase")).to_have_text("ready")
        page.has_no_faults()

        # Of a gateway that does not answer nobody knows how it is.
        page.page.route("**/v1/live", lambda route: route.abort())
        page.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.at("#connection")).to_contain_text(re.compile(r"reconnecting since \d\d:\d\d:\d\d: "), timeout=SOON_MS)
        expect(page.at("#phase")).to_be_hidden()
        expect(page.at("#figures")).to_have_css("opacity", "0.45")
        page.page.unroute("**/v1/live")
        expect(page.at("#phase")).to_have_text("ready", timeout=SOON_MS)
        expect(page.at("#figures")).to_have_css("opacity", "1")

    for name, how in [
        ("desktop-dark", {"color_scheme": "dark"}),
        ("desktop-light", {"color_scheme": "light"}),
        ("phone-dark", {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}),
        ("phone-light", {"color_scheme": "light", "viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}),
        ("phone-small", {"viewport": {"width": 320, "height": 600}}),
    ]:
        with opened(browser, admin, **how) as page:
            page.open().is_live()
            send("/a", 5, **{"x-user": "alice"})
            expect(page.at("#routes")).to_contain_text("hello", timeout=SOON_MS)
            for _ in range(3):
                send("/a", 20, **{"x-user": "alice"})
                page.page.wait_for_timeout(700)
            width, shown = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert width <= shown, f"{name}: {width} pixels on {shown}: the page scrolls sideways"
            picture(page, name)
            page.has_no_faults()
print("watched")
