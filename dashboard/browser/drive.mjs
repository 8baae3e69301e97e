// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Drives the page that browser_test.go serves. What is wrong ends it with 1.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const { PAGE, CONTROL, CHROMIUM, HOSTILE, SHOTS } = process.env;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let failed = 0;
const check = (what, ok, more) => {
  console.log((ok ? "ok    " : "FAIL  ") + what + (ok ? "" : ": " + JSON.stringify(more)));
  if (!ok) failed++;
};
const control = async (path) => { const r = await fetch(CONTROL + path); if (!r.ok) throw new Error(path + ": " + r.status); };

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
const errors = [], foreign = [];
const open = async (options) => {
  const context = await browser.newContext({ viewport: { width: 1000, height: 600 }, ...options });
  context.setDefaultTimeout(60000);
  const page = await context.newPage();
  page.on("console", (m) => { if (["error", "warning"].includes(m.type())) errors.push(m.text()); });
  page.on("pageerror", (e) => errors.push(String(e)));
  page.on("request", (r) => { if (!r.url().startsWith(PAGE)) foreign.push(r.url()); });
  return page;
};
// axe has to get past the policy that it is there to keep: through the debugger, not as a script of the page.
const serious = async (page, what) => {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await globalThis.axe.run(document)).violations.map((v) => [v.impact, v.id, v.nodes.map((n) => n.html.slice(0, 120)).slice(0, 3)]));
  check("axe: " + what, found.length === 0, found);
};
const shot = async (page, name) => { if (SHOTS) await page.screenshot({ path: SHOTS + "/" + name + ".png" }); };
const fits = async (page, what) => {
  const [w, most] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  check("fits its width: " + what, w <= most, [w, most]);
};

const row = (page, key) => page.locator("#rows tr", { has: page.locator(`a:text-is("${key}")`) });
const page = await open({ colorScheme: "light" });
await page.goto(PAGE);
await page.locator("#state:text-is('live')").waitFor();
check("a page has 50 rows", await page.locator("#rows tr").count() === 50, await page.locator("#rows tr").count());
await page.locator("#waiting:text-is('6')").waitFor();
await serious(page, "the list, light");
await page.locator("thead a:text-is('Waiters')").click();
await page.locator("#state:text-is('live')").waitFor();
check("a head sorts", await page.locator("#rows tr a").first().textContent() === "orders/7" && await page.locator("[aria-sort=descending]").textContent() === "Waiters");
check("four figures", (await page.locator(".figures dd").allTextContents()).join(" ").match(/^62 6 \S+s 1$/) !== null, await page.locator(".figures dd").allTextContents());
check("a row with a problem stands out", await row(page, "nightly-report").and(page.locator(".needs:has-text('its process has ended')")).count() === 1);
await page.goto(PAGE + "?sort=waiters&q=web");
await page.locator("#state:text-is('live')").waitFor();
await page.locator("#rows .waiters:text-is('3')").waitFor();
await shot(page, "dashboard-locks");
await page.goto(PAGE);
await page.locator("#state:text-is('live')").waitFor();

// A lock changes hands.
await control("ask?key=orders/1&host=next-host");
await row(page, "orders/1").locator(".waiters:text-is('1')").waitFor();
await control("handon?key=orders/1");
await row(page, "orders/1").locator(".holder:has-text('next-host')").waitFor();
check("the list follows a handoff", true);
await page.locator("#said:has-text('orders/1: next-host')").waitFor();
check("and says so to a screen reader", true);

// Nothing moves under the pointer.
await row(page, "orders/2").hover();
await control("ask?key=aaa/first&host=web-1");
await page.locator("#held:visible").waitFor();
check("the order stays under the pointer", await row(page, "aaa/first").count() === 0);
await page.mouse.move(2, 2);
await row(page, "aaa/first").waitFor();
check("and follows when it has left", await page.locator("#rows tr a").nth(1).textContent() === "aaa/first"); // after that of <img

// Pause.
await page.locator("#pause").click();
await page.locator("#state:text-is('paused')").waitFor();
await control("handon?key=aaa/first");
await page.waitForTimeout(1000); // there is no event of what does not happen
check("paused is paused", await row(page, "aaa/first").count() === 1);
await page.locator("#pause").click();
await row(page, "aaa/first").waitFor({ state: "detached" });
check("and goes on", true);

// A hostile key is text.
const link = page.locator("#rows a", { hasText: "onerror" });
check("a hostile key is text in the list", await link.textContent() === HOSTILE, await link.textContent());
await link.click();
await page.locator("#state:text-is('live')").waitFor();
check("and on its page", await page.locator("h1").textContent() === HOSTILE, await page.locator("h1").textContent());
check("and nothing came of it", await page.locator("main img").count() === 0);
await serious(page, "a hostile key");

// By keyboard alone, from the list to a break.
await page.goto(PAGE + "?q=orders/7");
await page.locator("#state:text-is('live')").waitFor();
await page.keyboard.press("Tab");
check("the first stop leads past the head", await page.evaluate(() => document.activeElement.className) === "skip");
const tabTo = async (test) => { for (let i = 0; i < 60; i++) { await page.keyboard.press("Tab"); if (await page.evaluate(test)) return true; } return false; };
check("Tab reaches the key", await tabTo(() => document.activeElement.textContent === "orders/7"));
await page.keyboard.press("Enter");
await page.locator("#state:text-is('live')").waitFor();
await serious(page, "the page of a key");
check("Tab reaches the button", await tabTo(() => document.activeElement.className === "break"));
const owner = await page.locator("#holders .owner").first().textContent();
await page.keyboard.press("Enter");
await page.locator("#ask").waitFor();
check("it asks with the owner that is shown", await page.locator("#askowner").textContent() === owner);
check("and the holder", (await page.locator("#askwho").textContent()).includes("web-3"));
await serious(page, "the question");
await page.keyboard.press("Escape");
await page.locator("#ask").waitFor({ state: "hidden" });
await page.keyboard.press("Enter");
await page.locator("#ask").waitFor();
await page.keyboard.type("it hangs");
await page.keyboard.press("Tab");
await page.keyboard.type("orders/8");
await page.keyboard.press("Enter");
await page.locator("#askerror:has-text('not the key')").waitFor();
check("another key breaks nothing", await page.locator("#holders .owner").first().textContent() === owner);
await page.locator("#typed").fill("orders/7");
await page.keyboard.press("Enter");
await page.locator("#ask").waitFor({ state: "hidden" });
await control("claim?key=orders/7");
await page.locator("#holders :text('worker-0')").waitFor();
await page.locator("#history :text('web-3 (pid 4211, user app) no longer holds it')").waitFor();
check("the lock is broken, and goes to the next", true);

// It changes hands while the question is open.
await page.goto(PAGE + "find?name=orders/12");
await page.locator("#state:text-is('live')").waitFor();
await page.locator("#holders .break").click();
await control("handon?key=orders/12");
await page.locator("#holders :text('worker-3')").waitFor();
await page.locator("#why").fill("too late");
await page.locator("#typed").fill("orders/12");
const quiet = errors.length;
await page.locator("#doit").click();
await page.locator("#askerror:has-text('no longer has the key')").waitFor();
errors.splice(quiet); // the browser itself reports a 409
check("a break that comes too late says so", (await page.locator("#holders").textContent()).includes("worker-3"));

for (const name of ["doctor", "leaks"]) {
  await page.goto(PAGE + name);
  await serious(page, name);
}

// Dark, and 320 px wide.
const dark = await open({ colorScheme: "dark" });
await dark.goto(PAGE);
await dark.locator("#state:text-is('live')").waitFor();
await serious(dark, "the list, dark");
await dark.goto(PAGE + "find?name=orders/7");
await dark.locator("#state:text-is('live')").waitFor();
await serious(dark, "the page of a key, dark");
await dark.locator("#holders .break").click();
await shot(dark, "dashboard-dark");
for (const name of ["find?name=orders/12", "doctor", "leaks"]) {
  await dark.goto(PAGE + name);
  await serious(dark, name + ", dark");
}
const small = await open({ viewport: { width: 320, height: 640 } });
for (const name of ["", "find?name=orders/7", "find?name=" + "x".repeat(400), "doctor", "leaks"]) {
  await small.goto(PAGE + name);
  await fits(small, name.slice(0, 20) || "the list");
  if (name === "") { await small.locator("#state:text-is('live')").waitFor(); await serious(small, "320 px"); }
}
await small.goto(PAGE + "?sort=waiters&q=web");
await small.locator("#state:text-is('live')").waitFor();
await shot(small, "dashboard-small");
await small.goto(PAGE + "find?name=orders/7");
await small.locator("#holders .break").click();
await fits(small, "the question");
await small.close();

// Without scripts the list is there.
const bare = await open({ javaScriptEnabled: false });
await bare.goto(PAGE + "?sort=waiters");
check("without scripts the list is there", (await bare.locator("#rows tr").first().textContent()).includes("orders/7"));
await bare.close();

// Hundreds of changes leave nothing behind.
const long = await open();
const metrics = await long.context().newCDPSession(long);
await metrics.send("Performance.enable");
const weigh = async () => {
  await metrics.send("HeapProfiler.collectGarbage");
  const m = Object.fromEntries((await metrics.send("Performance.getMetrics")).metrics.map((x) => [x.name, x.value]));
  return { heap: m.JSHeapUsedSize, nodes: m.Nodes, listeners: m.JSEventListeners };
};
for (const name of ["?q=", "find?name=orders/7"]) {
  await long.goto(PAGE + name);
  await long.locator("#state:text-is('live')").waitFor();
  const churn = async (n) => { for (let i = 0; i < n; i++) { await control("churn"); await long.waitForTimeout(40); } };
  await churn(150); // the history is full
  const before = await weigh();
  await churn(450);
  const after = await weigh();
  console.log("      " + name, JSON.stringify(before), JSON.stringify(after));
  check("no growth: " + name, after.heap < before.heap * 1.2 + 200000 && after.nodes < before.nodes * 1.2 + 200 && after.listeners <= before.listeners + 5, [before, after]);
}

check("no request to another site", foreign.length === 0, foreign);
check("no error on the console", errors.length === 0, errors);
await browser.close();
process.exitCode = failed ? 1 : 0;
