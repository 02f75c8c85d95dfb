"""Drives Chromium over the DevTools protocol on pages of `trireme report`; started by browser.sh.

It needs Python's standard library alone: the protocol runs over two pipes, messages end with a zero byte.
"""
import base64, json, math, os, random, re, select, shutil, subprocess, sys, tempfile, time


class Browser:
    """One page of a headless Chromium."""

    def __init__(self, program, profile):
        to_browser, self.out = os.pipe()
        self.inlet, from_browser = os.pipe()

        def attach():
            for fd, wanted in ((os.dup(to_browser), 3), (os.dup(from_browser), 4)):
                os.dup2(fd, wanted)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={profile}", "--no-first-run", "about:blank"],
            preexec_fn=attach, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.count, self.buffer, self.session, self.problems, self.loaded = 0, b"", None, [], False
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Accessibility", "Log"):
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.buffer:
            if not select.select([self.inlet], [], [], 60)[0]:
                raise TimeoutError("Chromium does not answer")
            self.buffer += os.read(self.inlet, 1 << 20)
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.count += 1
        request = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            event, details = message.get("method"), message.get("params", {})
            if event == "Page.loadEventFired":
                self.loaded = True
            elif event == "Runtime.exceptionThrown":
                self.problems.append(details["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif event == "Page.javascriptDialogOpening":
                self.problems.append("dialog " + details["message"])
            elif event == "Log.entryAdded" and details["entry"]["level"] == "error":
                self.problems.append(details["entry"]["text"])

    def open(self, url):
        self.loaded = False
        self.call("Page.navigate", url=url)
        while not self.loaded:
            self.call("Runtime.evaluate", expression="1")
            time.sleep(0.02)
        self.settle()

    def settle(self):
        """Waits until the page has been drawn twice."""
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def js(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def size(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.settle()

    def place(self, selector, x=0.5, y=0.5):
        """Returns a point of an element, scrolled into view."""
        return self.js(f"""(() => {{
          const element = document.querySelector({json.dumps(selector)});
          element.scrollIntoView({{ block: "center" }});
          const box = element.getBoundingClientRect();
          return [box.left + {x} * box.width, box.top + {y} * box.height];
        }})()""")

    def mouse(self, kind, point, count=1):
        held = kind in ("mousePressed", "mouseReleased")
        self.call("Input.dispatchMouseEvent", type=kind, x=point[0], y=point[1], button="left" if held else "none",
                  clickCount=count if held else 0)

    def hover(self, selector, x=0.5, y=0.5):
        self.mouse("mouseMoved", self.place(selector, x, y))
        self.settle()

    def click(self, selector, x=0.5, y=0.5, count=1):
        point = self.place(selector, x, y)
        self.mouse("mouseMoved", point)
        for i in range(1, count + 1):
            self.mouse("mousePressed", point, i)
            self.mouse("mouseReleased", point, i)
        self.settle()

    def drag(self, selector, begin, end):
        first, last = self.place(selector, *begin), self.place(selector, *end)
        self.mouse("mouseMoved", first)
        self.mouse("mousePressed", first)
        for step in (0.3, 0.6, 1):
            self.mouse("mouseMoved", [a + step * (b - a) for a, b in zip(first, last)])
        self.mouse("mouseReleased", last)
        self.settle()

    def key(self, name, count=1):
        for _ in range(count):
            text = {"text": name} if len(name) == 1 else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=name, **text,
                      windowsVirtualKeyCode={"ArrowRight": 39, "ArrowLeft": 37, "Tab": 9, "Enter": 13}.get(name, 0))
            self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)
        self.settle()

    def picture(self, name, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(name, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.process.kill()
        self.process.wait()


checks = failures = 0


def check(what, holds, found=""):
    global checks, failures
    checks += 1
    failures += not holds
    print(f"{'passed' if holds else 'FAILED'}: {what}" + ("" if holds else f" ({found})"), flush=True)


def record(i, iterations, seed):
    noise = random.Random(1000003 * seed + i).gauss(0, 0.03)
    return {"iteration": i, "consumed_samples": 8 * i, "lm_loss": 2 + 8 * math.exp(-20 * i / iterations) + noise,
            "grad_norm": 1 + abs(noise), "learning_rate": 6e-4 * (1 - 0.9 * i / iterations), "elapsed_ms": 500.0,
            "tokens_per_second": 5e5 * (1 + noise / 9), "tflops_per_rank": 300 * (1 + noise / 9),
            "peak_memory_bytes": 60 << 30, "skipped": i == iterations // 3}


def write_run(folder, iterations, seed, sets=("",)):
    os.makedirs(folder)
    with open(folder + "/metrics.jsonl", "w") as file:
        for i in range(1, iterations + 1):
            line = record(i, iterations, seed)
            file.write(json.dumps(line) + "\n")
            if i % (iterations // 10) == 0:
                for name in sets:
                    file.write(json.dumps({"iteration": i, "valid_set": name, "valid_loss": line["lm_loss"] + 0.1}) + "\n")
                texts = [{"prompt": "The ship", "text": f"rows {i} <b>strokes</b>"}, {"prompt": "Nine", "text": "oars"}]
                file.write(json.dumps({"iteration": i, "samples": texts}) + "\n")
    start = {"event": "start", "job": "7", "host": "node<1>", "version": "0", "device": "H100", "ranks": 8,
             "grid": {"tensor": 2, "data": 4}, "peak_tflops": 989, "parameters": 10**9, "defaults": {"seed": "1"},
             "options": {"data_path": "/a/very/long/path/" + "of-a-corpus-" * 6, "lr": str(seed)}}
    half = iterations // 2
    events = [{**start, "time": "2026-01-02T03:00:00Z", "iteration": 0, "lost_iterations": 0, "lost_ms": 0},
              {"event": "save", "time": "2026-01-02T03:10:00Z", "iteration": half},
              {"event": "end", "time": "2026-01-02T03:20:00Z", "iteration": half, "exit_code": 7, "reason": "rank 3 hung"},
              {**start, "time": "2026-01-02T04:00:00Z", "iteration": half, "lost_iterations": 5, "lost_ms": 2500}]
    with open(folder + "/metrics.jsonl.lives", "w") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def number(text):
    """Reads a short number of the page, such as 12.5k."""
    value, suffix = re.match(r"(-?[\d.]+(?:e-?\d+)?)([kMGT]?)", text.replace("\u202f", "")).groups()
    return float(value) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[suffix]


LEAD = "figure.lead > svg"
NORM = "figure[data-part=grad_norm] > svg"
tip = lambda b, figure="figure.lead": re.sub(r"^\s+", "", b.js(
    f"document.querySelector('{figure} .tip:not([hidden])')?.innerText ?? ''"), flags=re.M)
ticks = lambda b, svg=LEAD: b.js(f"[...document.querySelectorAll('{svg} text.x')].map((t) => t.textContent)")
lines = lambda b, svg=LEAD: b.js(f"document.querySelectorAll('{svg} path.line').length")
wide = "[...document.querySelectorAll('.wide, dl, pre, table')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"


def pages(b, work, trireme, pictures):
    """Layout at three widths, light and dark, with and without scripts."""
    for name, runs in (("one", ["one"]), ("three", ["one", "two", "three"])):
        subprocess.run([trireme, "report", *runs, "--output", name + ".html"], cwd=work, check=True)
        for width in (400, 800, 1400):
            for dark in (False, True):
                b.size(width, 900, dark)
                b.open(f"file://{work}/{name}.html")
                label = f"{name}, {width} px, {'dark' if dark else 'light'}"
                check(label + ": no side scrolling", b.js("document.documentElement.scrollWidth <= innerWidth"))
                b.hover(LEAD)
                check(label + ": a hover shows values", "iteration" in tip(b), tip(b))
                inside = b.js("(() => { const t = document.querySelector('.tip:not([hidden])').getBoundingClientRect();"
                              "return t.left >= 0 && t.right <= innerWidth; })()")
                check(label + ": the values are inside the window", inside)
                b.picture(f"{pictures}/{name}-{width}-{'dark' if dark else 'light'}.png")
                b.mouse("mouseMoved", [1, 1])
                b.picture(f"{pictures}/{name}-{width}-{'dark' if dark else 'light'}-page.png", whole=True)
                if width == 400:
                    top = lambda s: b.js(f"document.querySelector('{s}').getBoundingClientRect().top")
                    check(label + ": the first curve is before the facts", top(LEAD) < top("[data-part=facts]"))
                check(label + ": no table is wider than its place", b.js(wide) == 0, b.js(wide))
        for width in (400, 1400):
            b.size(width, 900)
            b.call("Emulation.setScriptExecutionDisabled", value=True)
            b.call("Page.navigate", url=f"file://{work}/{name}.html")
            time.sleep(1)
            b.picture(f"{pictures}/{name}-{width}-no-scripts.png", whole=True)
            curves = b.js(f"[...document.querySelectorAll('{LEAD} path.line')].every((line) => line.getBBox().width > 300)")
            check(f"{name}, {width} px, without scripts: curves are drawn", curves and b.js("!document.querySelector('.drawn')"))
            check(f"{name}, {width} px, without scripts: no side scrolling",
                  b.js("document.documentElement.scrollWidth <= innerWidth"))
            b.call("Emulation.setScriptExecutionDisabled", value=False)
            b.open("about:blank")


def actions(b, work):
    """Hover, drag, slider, legend, axes, keyboard."""
    b.size(1400, 900)
    b.open(f"file://{work}/three.html")
    b.hover(LEAD)
    rows = tip(b).splitlines()
    at = int(rows[0].split()[1])
    found = number(next(row for row in rows if row.startswith("one")).split("\t")[-1].strip() or rows[rows.index("one") + 1])
    check("a hover shows the loss of its iteration", abs(found - record(at, 300, 1)["lm_loss"]) < 1e-4, rows)
    check("and of all curves", all(any(row.startswith(name) for row in rows) for name in ("one", "two", "three")), rows)
    check("a hover marks the iteration in the other figures", b.js(f"!!document.querySelector('{NORM} .cross')"))
    check("but in none that begins later", b.js("!document.querySelector('[data-part=lm_loss-late] .cross')"))
    b.hover("figure[data-part=peak_memory_bytes] > svg")
    check("values have units", "60 GiB" in tip(b, "figure[data-part=peak_memory_bytes]"),
          tip(b, "figure[data-part=peak_memory_bytes]"))
    b.hover("figure[data-part=tokens_per_second] > svg")
    check("also speeds", "k tokens/s" in tip(b, "figure[data-part=tokens_per_second]"))

    before = ticks(b)
    check("without a zoom there is nothing to reset", b.js("document.querySelector('#reset').disabled"))
    b.drag(LEAD, (0.4, 0.5), (0.6, 0.52))
    check("a drag zooms", ticks(b) != before and 80 < number(ticks(b)[0]) < number(ticks(b)[-1]) < 220, ticks(b))
    check("the other figures follow", ticks(b, NORM) != before and 80 < number(ticks(b, NORM)[0]), ticks(b, NORM))
    b.drag(LEAD, (0.4, 0.2), (0.7, 0.8))
    check("a box zooms both axes", b.js("!document.querySelector('#reset').disabled") and len(ticks(b)) > 1, ticks(b))
    b.click(LEAD, count=2)
    check("a double click resets", ticks(b) == before, ticks(b))
    b.click("#linked")
    b.drag(LEAD, (0.4, 0.5), (0.6, 0.52))
    check("figures can be zoomed apart", ticks(b) != before and ticks(b, NORM)[-1] == "300", ticks(b, NORM))
    b.click("#reset")
    b.click("#linked")
    check("the button resets", ticks(b) == before, ticks(b))

    b.js("document.querySelector('#smoothing').focus()")
    b.key("ArrowRight", 60)
    text = b.js("document.querySelector('#smoothing-text').textContent")
    check("the slider smooths", "iterations" in text and b.js(f"document.querySelectorAll('{LEAD} .raw').length") == 3, text)
    b.hover(LEAD, 0.9)
    check("a hover shows smoothed and plain values", "not smoothed" in tip(b), tip(b))
    rows = tip(b).splitlines()
    at, span = int(rows[0].split()[1]), number(text)
    losses = [record(i, 300, 1)["lm_loss"] for i in range(1, at + 1)]
    weights = [math.exp((i - at) / ((299 / 4) ** 0.6)) for i in range(1, at + 1)]
    expected = sum(w * v for w, v in zip(weights, losses)) / sum(weights)
    found = number(rows[[i for i, row in enumerate(rows) if row.startswith("one")][0]].split("\t")[-1] or rows[2])
    inside = b.js(f"(() => {{ const s = document.querySelector('{LEAD}'); const box = s.querySelector('clipPath rect').getBBox();"
                  f"return [...s.querySelectorAll('.line')].every((l) => l.getBBox().y >= box.y - 1); }})()")
    check("smoothed curves are inside the axes", inside)
    check("by the exponential mean", abs(found - expected) < 2e-4, (rows, expected, span))
    b.key("Home")
    b.js("document.querySelector('#smoothing').value = 0; document.querySelector('#smoothing').oninput()")

    count = lines(b)
    b.click("figure.lead .legend li:nth-child(2) button")
    pressed = "document.querySelector('figure.lead .legend li:nth-child(2) button').getAttribute('aria-pressed')"
    check("a click on the legend hides a curve", lines(b) == count - 1 and b.js(pressed) == "false", lines(b))
    check("in this figure alone", lines(b, NORM) == 3, lines(b, NORM))
    b.hover(LEAD)
    check("a hidden curve has no value", "two" not in tip(b), tip(b))
    b.click("figure.lead .legend li:nth-child(2) button")
    b.click(".legend.runs li:nth-child(3) button")
    check("the list of runs hides one in all figures", lines(b) == 2 and lines(b, NORM) == 2, (lines(b), lines(b, NORM)))
    b.click(".legend.runs li:nth-child(3) button")
    check("a second click shows them again", lines(b) == count)

    words = lambda s: b.js(f"[...document.querySelectorAll('{s} text.label')].map((t) => t.textContent).join(' ')")
    for figure in ("lead", "[data-part=learning_rate]"):
        selector = "figure" + ("." if figure == "lead" else "") + figure
        was = "logarithmic" in words(selector)
        b.click(selector + " .toggle")
        check(f"log y changes the axis of {figure}", ("logarithmic" in words(selector)) != was, words(selector))
        b.click(selector + " .toggle")
    b.click("#log-x")
    check("log x changes all axes", "iteration, logarithmic" in words(LEAD) and "1" in ticks(b), ticks(b))
    b.hover(LEAD, 0.3)
    check("a hover works on log axes", int(tip(b).split()[1]) < 60, tip(b))
    b.click("#log-x")

    b.js(f"document.querySelector('{LEAD}').focus()")
    b.key("ArrowRight", 5)
    spoken = "document.querySelector('figure.lead .spoken').textContent"
    check("arrow keys move over the values", b.js(spoken).startswith("iteration"), b.js(spoken))
    at = int(b.js(spoken).split(";")[0].split()[1])
    b.key("ArrowLeft", 2)
    check("and back", int(b.js(spoken).split(";")[0].split()[1]) == at - 2, b.js(spoken))
    b.key("+", 2)
    check("plus zooms", ticks(b) != before, ticks(b))
    b.key("0")
    check("0 resets", ticks(b) == before, ticks(b))
    b.call("Emulation.setTouchEmulationEnabled", enabled=True)
    x, y = b.place(LEAD, 0.3)
    b.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    b.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    b.settle()
    check("a tap shows values, which stay", tip(b).startswith("iteration "), tip(b))
    b.call("Emulation.setTouchEmulationEnabled", enabled=False)
    nodes = b.call("Accessibility.getFullAXTree")["nodes"]
    roles = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored")]
    controls = [pair for pair in roles if pair[0] in ("button", "slider", "checkbox", "application")]
    check("each control has a name", len(controls) > 20 and all(name for _, name in controls), controls)


def hostile(b, work, trireme):
    bad = "<img src=x onerror=alert(1)>\"'&"
    write_run(f"{work}/{bad}", 40, 4, (bad, "</script><script>alert(2)</script>"))
    subprocess.run([trireme, "report", bad, "two", "--output", "hostile.html"], cwd=work, check=True)
    b.open(f"file://{work}/hostile.html")
    b.hover("figure[data-part=valid_loss] > svg")
    check("names with markup stay text", bad in tip(b, "figure[data-part=valid_loss]"), tip(b, "figure[data-part=valid_loss]"))
    check("and add no elements", b.js("document.querySelectorAll('img').length + document.scripts.length") == 1)


def large(b, work, trireme, pictures):
    write_run(f"{work}/large", 100000, 5)
    begin = time.time()
    subprocess.run([trireme, "report", "large", "--output", "large.html"], cwd=work, check=True)
    seconds, size = time.time() - begin, os.path.getsize(f"{work}/large.html")
    check(f"100,000 iterations are a page of {size / 1e6:.1f} MB, made in {seconds:.1f} s", size < 2e6, size)
    b.open(f"file://{work}/large.html")
    took = b.js(f"""(() => {{
      const svg = document.querySelector('{LEAD}'), box = svg.getBoundingClientRect(), times = [];
      for (let i = 0; i < 101; ++i) {{
        const begin = performance.now();
        svg.dispatchEvent(new PointerEvent("pointermove",
          {{ clientX: box.left + box.width * (0.1 + 0.008 * i), clientY: box.top + 99 }}));
        times.push(performance.now() - begin);
      }}
      return times.sort((a, b) => a - b)[50];
    }})()""")
    check(f"a hover takes {took:.1f} ms there", took < 16, took)
    took = b.js("""(() => {
      const slider = document.querySelector('#smoothing'), begin = performance.now();
      for (let i = 1; i <= 10; ++i) { slider.value = 8 * i; slider.oninput(); }
      return (performance.now() - begin) / 10;
    })()""")
    check(f"a move of the slider takes {took:.0f} ms", took < 100, took)
    b.drag(LEAD, (0.3, 0.5), (0.35, 0.5))
    check("a zoom shows more detail than the picture", b.js(f"document.querySelectorAll('{LEAD} .line').length") == 2)
    b.picture(f"{pictures}/large-zoomed.png")


def followed(b, work, trireme):
    write_run(f"{work}/live", 100, 6)
    server = subprocess.Popen([trireme, "report", "live", "two", "--follow", "--port", "0"], cwd=work, text=True,
                              stdout=subprocess.PIPE)
    url = re.search(r"http://\S+", server.stdout.readline()).group()
    try:
        b.size(800, 700)
        b.open(url)
        b.drag(LEAD, (0.2, 0.5), (0.5, 0.5))
        b.click("figure.lead .legend li:nth-child(2) button")
        b.js("document.querySelector('details').open = true")
        kept = "[scrollY, document.querySelector('details').open, document.querySelectorAll('.key[aria-pressed=false]').length]"
        b.js("scrollTo(0, 900)")
        b.settle()
        b.js("document.querySelector('figure.lead .legend li:nth-child(2) button').focus({ preventScroll: true })")
        state, zoom = b.js(kept), ticks(b)
        with open(f"{work}/live/metrics.jsonl", "a") as file:
            for i in range(101, 201):
                file.write(json.dumps(record(i, 100, 6)) + "\n")
        facts = "document.querySelector('[data-part=facts]').innerText"
        end = time.time() + 15
        while "at 200" not in b.js(facts) and time.time() < end:
            time.sleep(0.2)
        check("a followed page shows new points", "at 200" in b.js(facts), b.js(facts))
        check("it keeps the focus", b.js("document.activeElement.className") == "key",
              b.js("document.activeElement.tagName"))
        check("it keeps zoom", ticks(b) == zoom, (zoom, ticks(b)))
        check("it keeps scroll, open lists and hidden curves", b.js(kept) == state and state[0] == 900, (state, b.js(kept)))
        b.click(LEAD, count=2)
        check("the new points are in the figure", number(ticks(b)[-1]) > 150, ticks(b))
        b.click("#pause")
        check("it can be paused", b.js("document.querySelector('.live').textContent") == "paused")
        b.click("#pause")
        os.rename(f"{work}/live", f"{work}/gone")
        end = time.time() + 10
        while "there is no live" not in b.js("document.body.innerText") and time.time() < end:
            time.sleep(0.2)
        check("a run that is gone is a message", "there is no live" in b.js("document.body.innerText"))
        os.rename(f"{work}/gone", f"{work}/live")
        end = time.time() + 10
        while not b.js(f"!!document.querySelector('{LEAD}')") and time.time() < end:
            time.sleep(0.2)
        check("and its figures come back", b.js(f"!!document.querySelector('{LEAD}.drawn')") and lines(b) == 1, lines(b))
    finally:
        server.kill()
        server.wait()
    end = time.time() + 10
    while "no answer" not in b.js("document.querySelector('.live').textContent") and time.time() < end:
        time.sleep(0.2)
    check("a server that ended is named", "no answer" in b.js("document.querySelector('.live').textContent"))


def main():
    trireme, program, pictures, keeps = [*sys.argv[1:], ""][:4]
    work = tempfile.mkdtemp()
    pictures = pictures if keeps else work
    browser = Browser(program, work + "/profile")
    try:
        for seed, name in enumerate(("one", "two", "three"), 1):
            write_run(f"{work}/{name}", 300, seed)
        pages(browser, work, trireme, pictures)
        actions(browser, work)
        hostile(browser, work, trireme)
        large(browser, work, trireme, pictures)
        check("no script failed and no dialog opened", not browser.problems, browser.problems)
        followed(browser, work, trireme)
    finally:
        browser.close()
        shutil.rmtree(work, ignore_errors=True)
    print(f"{checks} checks, {failures} failed")
    sys.exit(failures > 0)


main()
