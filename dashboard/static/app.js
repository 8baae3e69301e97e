// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Keeps the page as it came from the server up to date. Everything that others wrote goes
// into the page as text, never as HTML.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const text = (el, s) => { s = String(s); if (el && el.textContent !== s) el.textContent = s; };
  const show = (el, yes) => { if (el) el.hidden = !yes; };

  // Times are the server's: this machine's clock may be another.
  let ahead = Number(document.body.dataset.now) - Date.now();
  const now = () => Date.now() + ahead;
  const short = (ms) => {
    const s = Math.max(0, ms) / 1000, n = Math.floor;
    if (s < 10) return s.toFixed(1) + "s";
    if (s < 60) return n(s) + "s";
    if (s < 3600) return n(s / 60) + "m" + n(s % 60) + "s";
    if (s < 86400) return n(s / 3600) + "h" + n(s % 3600 / 60) + "m";
    return n(s / 86400) + "d" + n(s % 86400 / 3600) + "h";
  };
  const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
  const ago = (ms) => !ms ? "–" : ms - now() > 1000 ? `since ${short(ms - now())} ahead of this clock` : short(now() - ms);
  const left = (ms) => ms < 0 ? "never ends" : ms ? short(ms - now()) : "–";
  const tick = () => {
    for (const el of document.querySelectorAll("main .since[data-ms]")) text(el, ago(Number(el.dataset.ms)));
    for (const el of document.querySelectorAll("main .until[data-ms]")) text(el, left(Number(el.dataset.ms)));
  };
  setInterval(() => { if (!document.hidden && !paused) tick(); }, 1000);

  // A command has a button that copies it, where the browser lets a page do that.
  const copyable = (code) => {
    if (!navigator.clipboard) return code;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    code.after(" ", button);
    return code;
  };

  // What happens is said to a screen reader, but not all the time.
  let unsaid = [], silent = false;
  const say = (s) => {
    unsaid.push(s);
    if (silent) return;
    text($("said"), unsaid.slice(0, 3).join(". ") + (unsaid.length > 3 ? ". And " + (unsaid.length - 3) + " more changes" : ""));
    unsaid = [];
    silent = true;
    setTimeout(() => { silent = false; if (unsaid.length) say(unsaid.pop()); }, 5000);
  };

  // The live view: open while the page can be seen and is not paused.
  let source = null, paused = false, retry = 0, later = 0;
  const state = (s) => text($("state"), s);
  const connect = (url, event, take) => {
    const close = () => { clearTimeout(later); if (source) source.close(); source = null; };
    const open = () => {
      close();
      if (paused || document.hidden) return;
      state("connecting");
      source = new EventSource(url);
      source.addEventListener("open", () => { retry = 0; state("live"); });
      source.addEventListener(event, (e) => { const d = JSON.parse(e.data); ahead = d.now - Date.now(); take(d); tick(); });
      source.addEventListener("error", () => {
        state("not connected, trying again");
        if (source && source.readyState === EventSource.CLOSED) { // the server said no
          close();
          retry = Math.min(retry + 1, 5);
          later = setTimeout(open, 1000 * 2 ** retry);
        }
      });
    };
    show($("live"), true);
    $("pause").addEventListener("click", () => {
      paused = !paused;
      $("pause").setAttribute("aria-pressed", String(paused));
      if (paused) { close(); state("paused"); } else open();
    });
    document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", (e) => { if (e.persisted) open(); });
    open();
  };

  // The list.
  const list = () => {
    const rows = $("rows"), table = $("locks"), blank = $("row").content.firstElementChild;
    const byID = new Map([...rows.children].map((tr) => [tr.dataset.id, tr]));
    let order = [...byID.keys()], dirty = false;
    const cell = (tr, name) => tr.querySelector("." + name);
    const fill = (tr, r, fresh) => {
      const holder = cell(tr, "holder"), who = holder.querySelector(".text"), before = who.textContent;
      tr.dataset.id = r.id;
      tr.classList.toggle("needs", r.needs);
      const a = tr.querySelector("a");
      text(a, r.key);
      a.href = "lock?key=" + r.id;
      text(cell(tr, "mode"), r.mode);
      text(who, r.holder);
      text(cell(tr, "mark"), r.mark);
      show(cell(tr, "mark"), r.mark !== "");
      cell(tr, "since").dataset.ms = r.since;
      cell(tr, "until").dataset.ms = r.until;
      text(cell(tr, "fence"), r.fence);
      text(cell(tr, "waiters"), r.waiters);
      text(cell(tr, "reason"), r.reason);
      if (!fresh && before !== r.holder) {
        say(r.key + ": " + r.holder);
        tr.classList.add("new");
        setTimeout(() => tr.classList.remove("new"), 2000);
      }
    };
    // Nothing moves under a pointer, or under the focus.
    const busy = () => table.matches(":hover, :focus-within");
    const arrange = () => {
      dirty = false;
      const keep = new Set(order);
      for (const [id, tr] of byID) if (!keep.has(id)) { tr.remove(); byID.delete(id); }
      let at = rows.firstElementChild;
      for (const id of order) {
        const tr = byID.get(id);
        if (tr === at) at = at.nextElementSibling;
        else rows.insertBefore(tr, at);
        tr.classList.remove("gone");
      }
      show($("held"), false);
      show($("empty"), order.length === 0);
    };
    const settle = () => { if (dirty && !busy()) arrange(); };
    table.addEventListener("mouseleave", () => setTimeout(settle));
    table.addEventListener("focusout", () => setTimeout(settle));
    connect("events/locks" + location.search, "list", (d) => {
      for (const r of d.rows || []) {
        let tr = byID.get(r.id);
        const fresh = !tr;
        if (fresh) { tr = blank.cloneNode(true); byID.set(r.id, tr); }
        fill(tr, r, fresh);
      }
      if (d.order || d.empty) {
        order = d.order || [];
        const keep = new Set(order);
        // Those that wait to be shown and are over already are forgotten.
        for (const [id, tr] of byID) if (!keep.has(id) && !tr.isConnected) byID.delete(id);
        for (const [id, tr] of byID) tr.classList.toggle("gone", !keep.has(id));
        dirty = true;
        if (busy()) show($("held"), true);
        else arrange();
      }
      text($("found"), d.found);
      text($("keys"), d.keys);
      text($("nheld"), d.held);
      text($("waiting"), d.waiters);
      $("longest").dataset.ms = d.longest;
      text($("needy").lastElementChild, d.needy);
      $("needy").classList.toggle("needs", d.needy > 0);
      text($("pages"), d.pages);
      text($("at"), clock(d.at));
      show($("more"), d.more);
      text($("trouble"), d.trouble || "");
      show($("trouble"), d.trouble);
    });
  };

  // One key.
  const lock = () => {
    const id = $("lock").dataset.id, breaks = document.body.dataset.breaks === "true";
    let last = null, seen = 0;
    const person = (li, p) => {
      li.dataset.owner = p.owner;
      for (const [name, value] of [["text", p.who], ["mark", p.mark], ["how", p.how], ["fence", p.fence], ["reason", p.reason], ["owner", p.owner]]) {
        const el = li.querySelector("." + name);
        if (el) text(el, value);
      }
      show(li.querySelector(".mark"), p.mark !== "");
      li.querySelector(".since").dataset.ms = p.since;
      const until = li.querySelector(".until");
      if (until) until.dataset.ms = p.until;
      show(li.querySelector(".break"), p.owner !== "");
    };
    const people = (box, blank, all) => {
      // By owner, so that the button under the focus stays that of the same one.
      const old = new Map([...box.children].map((li) => [li.dataset.owner, li]));
      let at = box.firstElementChild;
      for (const p of all) {
        let li = old.get(p.owner);
        if (li) old.delete(p.owner); else li = blank.content.firstElementChild.cloneNode(true);
        person(li, p);
        if (li === at) at = at.nextElementSibling; else box.insertBefore(li, at);
      }
      for (const li of old.values()) li.remove();
      while (box.children.length > all.length) box.lastElementChild.remove();
    };
    const codes = (section, box, all) => {
      show(section, all.length > 0);
      if (all.length === box.children.length && all.every((s, i) => box.children[i].textContent === s)) return;
      box.replaceChildren(...all.map((s) => { const li = document.createElement("li"), c = document.createElement("code"); c.textContent = s; li.append(c); return li; }));
    };
    connect("events/lock?key=" + id, "lock", (d) => {
      text($("trouble"), d.trouble || "");
      show($("trouble"), d.trouble);
      if (d.lock) {
        last = d.lock;
        text($("lockstate"), last.state);
        text($("waiting"), last.waiters);
        people($("holders"), $("holder"), last.holders);
        people($("queue"), $("waiter"), last.queue);
        show($("nobody"), last.holders.length === 0);
        show($("nowaiter"), last.queue.length === 0);
        const more = last.waiters - last.queue.length;
        show($("rest"), more > 0);
        text($("rest"), "and " + more + " more");
        codes($("byhand"), $("statements"), last.by_hand);
        codes($("tofree"), $("frees"), last.free_by_hand);
      }
      for (const c of d.changes || []) {
        if (c.seq <= seen) continue; // of an earlier connection
        seen = c.seq;
        const li = document.createElement("li"), time = document.createElement("time");
        time.dateTime = new Date(c.at).toISOString();
        time.textContent = clock(c.at);
        li.append(time, " " + c.text);
        $("history").prepend(li);
        while ($("history").children.length > 100) $("history").lastElementChild.remove();
        say(c.text);
      }
    });
    if (breaks) breaking(id);
  };

  const breaking = (id) => {
    const ask = $("ask"), shown = $("lock").dataset.key;
    let owner = "";
    const fail = (s) => { text($("askerror"), s); show($("askerror"), s !== ""); };
    document.addEventListener("click", (e) => {
      const button = e.target.closest("button.break");
      if (!button) return;
      const li = button.closest("li"), of = (name) => li.querySelector("." + name).textContent, waits = li.parentElement.id === "queue";
      owner = li.dataset.owner; // the one that is shown now, whoever comes after
      text($("askrole"), waits ? "Waiter" : "Holder");
      text($("askwho"), of("text"));
      text($("askfor"), of("since"));
      text($("askreason"), of("reason"));
      text($("askowner"), owner);
      text($("askwhat"), waits ? "This removes it from the queue; it may queue again."
        : "Its lease is lost, but it may work on until it notices. The key goes to the next waiter.");
      $("why").value = $("typed").value = "";
      fail("");
      ask.showModal();
      $("why").focus();
    });
    $("cancel").addEventListener("click", () => ask.close());
    $("askform").addEventListener("submit", async (e) => {
      e.preventDefault();
      if ($("typed").value.trim() !== shown.trim()) { fail("That is not the key: nothing was done."); $("typed").focus(); return; }
      $("doit").disabled = true;
      fail("");
      try {
        const answer = await fetch("api/v1/locks/" + id + "/break", {
          method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ owner, reason: $("why").value }),
        });
        const got = await answer.json();
        if (answer.ok) {
          ask.close();
          say(got.warning || "Broken: taken from " + $("askwho").textContent);
        } else fail(got.error + (answer.status === 409 && got.now && got.now.holder ? "; it is held by another now" : ""));
      } catch {
        fail("The server does not answer: it may or may not have been broken. Look at the holder.");
      } finally {
        $("doit").disabled = false;
      }
    });
  };

  for (const code of document.querySelectorAll("code.copy")) copyable(code);
  if (document.body.dataset.page === "locks") list();
  if (document.body.dataset.page === "lock") lock();
})();
