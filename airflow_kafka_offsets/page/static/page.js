"use strict";
// Theme first, before anything is drawn: Airflow's UI has it as a class, and keeps the choice by itself.
const framed = () => { try { return parent !== window && parent.document ? parent : null; } catch { return null; } };
function theme() {
  const top = framed();
  const chosen = top ? (top.document.documentElement.classList.contains("dark") ? "dark" : "light") : localStorage.getItem("theme");
  const dark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.classList.toggle("dark", dark);
}
theme();
if (framed()) new MutationObserver(theme).observe(parent.document.documentElement, { attributes: true, attributeFilter: ["class"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);

document.addEventListener("DOMContentLoaded", () => {
  const $ = (id) => document.getElementById(id), all = (what, from = document) => [...from.querySelectorAll(what)];
  const number = (n) => Number(n).toLocaleString("en-US"), six = (n) => String(n).padStart(6, "0");

  // Links to Airflow's own pages: the frame may not leave itself, but the UI around it listens to its history.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-top]"), top = framed();
    if (!link || !top || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    top.history.pushState({}, "", link.href);
    top.dispatchEvent(new top.PopStateEvent("popstate", { state: {} }));
  });

  // Times in the zone of Airflow's UI.
  function localize(from) {
    let zone = "UTC";
    try { zone = JSON.parse(localStorage.getItem("timezone") || '"UTC"'); } catch { zone = localStorage.getItem("timezone"); }
    if (zone === "local") zone = undefined;
    try {
      const parts = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: zone };
      const form = new Intl.DateTimeFormat("en-GB", parts), withYear = new Intl.DateTimeFormat("en-GB", { ...parts, year: "numeric" });
      if ($("zone")) $("zone").textContent = form.resolvedOptions().timeZone;
      for (const time of all("time, [data-at]", from)) {
        const at = new Date(time.dateTime || time.dataset.at), isNear = Math.abs(Date.now() - at) < 300 * 86_400_000;
        time.textContent = (isNear ? form : withYear).format(at).replace(",", "");
      }
    } catch { /* a zone that this browser does not know: UTC stays */ }
  }
  localize(document);

  const SLOW = 1500; // after these milliseconds a page, or a dialog, says that it still waits

  // What Kafka says comes after the page, and again every 15 seconds while someone looks.
  const asker = document.querySelector("[data-now]");
  let lastAsked = 0, lastShown = 0;
  // Answers may change places on their way: none is shown after that to a later question.
  function isLate(question) {
    if (question < lastShown) return true;
    lastShown = question;
    return false;
  }
  async function now() {
    if (document.hidden) return;
    const mine = ++lastAsked;
    const late = setTimeout(() => {
      for (const one of all(".cards small")) if (one.textContent === "asking Kafka") one.textContent = "Kafka has not answered yet";
      if ($("summary") && !$("summary").textContent) $("summary").textContent = " · Kafka has not answered yet";
    }, SLOW);
    try {
      const strips = all(".strip[data-tp]"), show = strips.map((strip) => strip.dataset.tp).join(",");
      const answer = await fetch(asker.dataset.now + (show ? `?show=${encodeURIComponent(show)}` : ""), { headers: { accept: "application/json" } });
      if (answer.status === 401) throw new Error("Your session has ended. Reload Airflow.");
      const said = await answer.json();
      if (!answer.ok) throw new Error(said.error);
      if (isLate(mine)) return;
      for (const [id, html] of Object.entries(said.parts)) if ($(id)) $(id).innerHTML = html;
      for (const [group, cells] of Object.entries(said.groups || {})) {
        const row = document.querySelector(`tr[data-group="${CSS.escape(group)}"]`);
        if (!row) continue;
        row.dataset.look = cells.look;
        for (const cell of all("[data-now-cell]", row)) cell.innerHTML = cells[cell.dataset.nowCell];
      }
      draw(strips, said.partitions || {});
      for (const [topic, cells] of Object.entries(said.heat || {})) {
        heat(topic, cells);
        document.getElementById("heat-by").textContent = "further behind";
      }
      if ($("folded")) {
        const many = (said.folded || {})[$("folded").dataset.by] || 0;
        $("folded").hidden = !many;
        $("folded").querySelector("b").textContent = number(many);
      }
    } catch (error) {
      if (!isLate(mine)) forget(error.message || "Airflow did not answer");
    } finally {
      clearTimeout(late);
      if ($("needs")) { $("needs").textContent = number(all("tr[data-look=true]").length); filter(); }
    }
  }
  // An old verdict may be wrong by now: without a newer one, none is shown.
  function forget(why) {
    const reason = $("reason") || $("summary");
    if (reason) reason.textContent = ($("summary") ? " · " : "") + why;
    for (const badge of all("#verdict .badge, [data-now-cell=verdict] .badge")) {
      Object.assign(badge, { className: "badge plain", textContent: "NOT KNOWN", title: why });
    }
    for (const told of all("#card-lag, #card-headroom, [data-now-cell=lag], [data-now-cell=headroom]")) told.innerHTML = "<b>?</b><small>not known</small>";
    for (const behind of all(".strip .behind")) Object.assign(behind, { className: "behind", textContent: "—", title: "" });
    for (const drawn of all(".strip g")) drawn.replaceChildren();
    for (const cell of all(".heat rect")) {
      cell.setAttribute("class", `heat-${cell.dataset.shade} level-0`);
      for (const fact of ["lag", "lost", "risk"]) delete cell.dataset[fact];
    }
    if ($("folded")) $("folded").hidden = true;
    for (const row of all("tr[data-group]")) row.dataset.look = true;
  }
  if (asker) { now(); setInterval(now, all("tr[data-group]").length > 200 ? 60000 : 15000); document.addEventListener("visibilitychange", now); }

  // What no window has yet, in proportion to the partition that has most; the edges of the log; and what is lost before its beginning.
  function draw(strips, facts) {
    const box = $("strips"), newest = box && box.dataset.newest === "yes", byOffset = box && box.dataset.axis === "offset";
    // Right of the windows: first what is gone, then what Kafka still holds.
    const rest = (strip) => {
      const p = facts[strip.dataset.tp], next = Number(strip.dataset.next);
      if (!newest || !p || p.end === null || p.end <= next) return { next, gone: 0, left: 0 };
      const from = p.lost ? Math.max(next, p.beginning) : next;
      return { next, gone: from - next, left: p.end - from };
    };
    const rests = new Map(strips.map((strip) => [strip, rest(strip)]));
    const most = Math.max(1, ...[...rests.values()].map(({ gone, left }) => gone + left));
    for (const strip of strips) {
      const p = facts[strip.dataset.tp], parts = [];
      if (!p) continue;
      const first = Number(strip.dataset.first), last = Number(strip.dataset.last), { next, gone, left } = rests.get(strip);
      const at = (offset) => 90 * (offset - first) / Math.max(1, last - first), wide = (offsets) => Math.max(0.6, 10 * offsets / most);
      const behind = strip.querySelector(".behind");
      behind.textContent = p.lost ? `${number(p.lost)} lost` : p.behind;
      behind.title = p.lost ? `${p.behind}, of which ${number(p.lost)} are lost to retention` : "";
      behind.classList.toggle("bad", p.lost > 0);
      if (byOffset && p.lost) {
        // A window that is still open was to read these.
        const from = Math.max(first, p.beginning - p.lost), to = Math.min(p.beginning, last, next);
        if (to > from) parts.push({ class: "lost", x: `${at(from)}%`, width: `${at(to) - at(from)}%`, "data-r": `${from}-${to}` });
      }
      const border = gone ? 90 + Math.min(wide(gone), left ? 9.4 : 10) : 90;
      if (gone) parts.push({ class: "lost", x: "90%", width: `${border - 90}%`, "data-r": `${next}-${next + gone}` });
      if (left) parts.push({ class: "unread", x: `${border}%`, width: `${wide(left)}%`, "data-r": `${next + gone}-${p.end}` });
      const isHere = (offset) => byOffset && offset !== null && offset > first && offset <= last;
      const begins = isHere(p.beginning) ? at(p.beginning) : gone ? border : null;
      let ends = null;
      // The line is right of its place, and is not cut off at the right of the strip.
      if (left) ends = Math.min(99.7, border + wide(left));
      else if (isHere(p.end)) ends = at(p.end);
      else if (newest && p.end !== null && p.end >= next) ends = border;
      else if (newest && byOffset && p.end !== null) ends = 0; // Kafka has less than what the first of these windows read
      // Of an empty log one line says it: both edges are there.
      if (ends !== null && ends !== begins) parts.push({ class: "edge end", x: `${ends}%`, width: "2" });
      if (begins !== null) parts.push({ class: "edge begin", x: `${begins}%`, width: "2" });
      const group = strip.querySelector("g");
      group.replaceChildren(...parts.map((part) => {
        const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        for (const [name, value] of Object.entries(part)) rect.setAttribute(name, value);
        return rect;
      }));
    }
  }

  function heat(topic, cells) {
    const rects = all(`.heat[data-topic="${CSS.escape(topic)}"] rect`);
    const order = ["quiet", "read", "gap", "risk", "lost"];
    for (const [i, [first, lag, level, danger, lost]] of cells.entries()) {
      if (rects.length !== cells.length || !rects[i].dataset.p.startsWith(`${first}-`)) return;
      const worse = order.indexOf(danger) > order.indexOf(rects[i].dataset.shade) ? danger : rects[i].dataset.shade;
      rects[i].setAttribute("class", `heat-${worse} level-${level}`);
      Object.assign(rects[i].dataset, { lag, lost, risk: danger === "risk" });
    }
  }

  // The list: find by name, or only what needs a look.
  let only = "all";
  function filter() {
    const text = $("find").value.trim().toLowerCase();
    let shown = 0;
    for (const row of all(".groups tbody tr")) {
      row.hidden = !row.dataset.words.toLowerCase().includes(text) || (only === "look" && row.dataset.look !== "true");
      shown += !row.hidden;
    }
    $("nothing").hidden = shown > 0;
  }
  if ($("find")) {
    $("find").addEventListener("input", filter);
    for (const chip of all("[data-filter]")) chip.addEventListener("click", () => {
      only = chip.dataset.filter;
      for (const one of all("[data-filter]")) { one.classList.toggle("on", one === chip); one.setAttribute("aria-pressed", one === chip); }
      filter();
    });
  }

  // Blocks tell what they are.
  const hint = $("hint"), facts = $("facts") ? JSON.parse($("facts").textContent) : {};
  document.addEventListener("pointermove", (event) => {
    const block = event.target.closest && event.target.closest("rect[data-r], rect[data-p]");
    hint.hidden = !block;
    if (!block) return;
    hint.textContent = block.dataset.r ? told(block) : cell(block);
    hint.style.left = `${Math.min(event.clientX + 14, innerWidth - hint.offsetWidth - 8)}px`;
    hint.style.top = `${Math.max(8, event.clientY - hint.offsetHeight - 14)}px`;
  });
  function cell(block) {
    const [from, to] = block.dataset.p.split("-"), behind = block.dataset.lag;
    return `${from === to ? `partition ${from}` : `partitions ${from} to ${to}`}\n${number(block.dataset.n)} offsets in these windows${behind === undefined ? "" : `\n${number(behind)} behind`}${Number(block.dataset.lost) ? `, ${number(block.dataset.lost)} lost to retention` : ""}${block.dataset.risk === "true" ? "\nretention may take some of it soon" : ""}`;
  }
  function told(block) {
    const [start, end] = block.dataset.r.split("-"), kind = block.classList[0].replace("-", " ");
    const name = block.dataset.w ? `${six(block.dataset.w)} · ${kind}` : { lost: "lost to retention", gap: "no owner", pruned: "pruned: their windows left the ledger", unread: "not read yet" }[kind] || `${kind}, by another DAG`;
    return `${name}\n${block.closest("[data-tp]").dataset.tp} · offsets [${start}, ${end})\n${number(end - start)} offsets`;
  }

  // Select windows: a click, or a drag over several; the boxes of the list do the same.
  const box = $("selection"), picked = new Set();
  const known = Object.keys(facts).map(Number).sort((a, b) => a - b);
  function show() {
    for (const rect of all(".strip rect[data-w]")) rect.classList.toggle("picked", picked.has(Number(rect.dataset.w)) && !rect.classList.contains("lost"));
    for (const tick of all("[data-pick]")) tick.checked = picked.has(Number(tick.dataset.pick));
    const seqs = [...picked].sort((a, b) => a - b), some = seqs.length > 0;
    box.classList.toggle("on", some);
    $("clear").disabled = $("replay").disabled = !some;
    box.dataset.windows = seqs.join(",");
    $("selected").textContent = some ? `${number(seqs.length)} window${seqs.length > 1 ? "s" : ""} selected` : "Replay windows";
    $("selected-what").textContent = some
      ? `${six(seqs[0])}${seqs.length > 1 ? ` to ${six(seqs[seqs.length - 1])}` : ""} · ${number(seqs.reduce((sum, seq) => sum + (facts[seq] ? facts[seq][0] : 0), 0))} offsets`
      : "Click a block in a strip, or drag over several.";
  }
  if ($("strips")) {
    let from = null, before = new Set();
    const seqOf = (event) => { const rect = event.target.closest("rect[data-w]"); return rect && facts[rect.dataset.w] ? Number(rect.dataset.w) : null; };
    const reach = (to) => {
      picked.clear();
      for (const seq of before) picked.add(seq);
      for (const seq of known) if (seq >= Math.min(from, to) && seq <= Math.max(from, to)) picked.add(seq);
      show();
    };
    $("strips").addEventListener("pointerdown", (event) => {
      const seq = seqOf(event);
      if (seq === null) return;
      event.preventDefault();
      if (picked.has(seq)) { picked.delete(seq); return show(); }
      before = event.shiftKey || event.ctrlKey || event.metaKey ? new Set(picked) : new Set();
      if (event.shiftKey && picked.size) from = Math.max(...picked); else from = seq;
      return reach(seq);
    });
    $("strips").addEventListener("pointermove", (event) => { const seq = from === null || !event.buttons ? null : seqOf(event); if (seq !== null) reach(seq); });
    addEventListener("pointerup", () => { from = null; });
    for (const tick of all("[data-pick]")) tick.addEventListener("change", () => { picked[tick.checked ? "add" : "delete"](Number(tick.dataset.pick)); show(); });
    $("all").addEventListener("click", () => { for (const seq of known) picked.add(seq); show(); });
    $("clear").addEventListener("click", () => { picked.clear(); show(); });
    show();
  }

  // Replay: ask what would happen, and post to Airflow as this user only after a yes.
  const dialog = $("dialog");
  let asked = null;
  function tell(title, text, look) {
    const [heading, what, close] = ["h1", "p", "button"].map((name) => document.createElement(name)), actions = document.createElement("div");
    heading.id = "dialog-title";
    heading.textContent = title;
    what.className = look;
    what.setAttribute("role", "status"); // so that a screen reader tells it, too, when the words change
    what.textContent = text;
    close.className = "button";
    close.dataset.close = "";
    close.textContent = "Close";
    actions.className = "actions";
    actions.append(close);
    dialog.replaceChildren(heading, what, actions);
  }
  if (box && $("replay")) $("replay").addEventListener("click", async () => {
    const mine = asked = {}, isShown = () => dialog.open && asked === mine;
    tell("Asking Kafka…", "Which of these records does it still hold?", "muted");
    dialog.showModal();
    // Only the words: the button keeps its focus.
    const late = setTimeout(() => {
      if (!isShown()) return;
      $("dialog-title").textContent = "There is no answer yet";
      dialog.querySelector("p").textContent = "The ledger and Kafka are asked, for half a minute at most. You can wait, or close this: nothing has started.";
    }, SLOW);
    try {
      const answer = await fetch(`${box.dataset.replay}?windows=${box.dataset.windows}`), text = await answer.text();
      if (!isShown()) return;
      if (answer.ok) dialog.innerHTML = text;
      else {
        const page = new DOMParser().parseFromString(text, "text/html");
        tell(page.querySelector("h1").textContent, page.querySelector(".empty").textContent, "alert bad");
      }
      localize(dialog);
    } catch {
      if (asked === mine) tell("Airflow did not answer", "What a replay would do is not known. Close this, and try again.", "alert bad");
    } finally { clearTimeout(late); }
  });
  if (dialog) dialog.addEventListener("click", async (event) => {
    if (event.target.closest("[data-close]")) return dialog.close();
    const yes = event.target.closest("[data-confirm]");
    if (!yes) return undefined;
    yes.disabled = true;
    const dag = dialog.querySelector("select").value, say = dialog.querySelector("[data-said]");
    say.hidden = false;
    try {
      const answer = await fetch(`${document.body.dataset.base}/api/v2/dags/${encodeURIComponent(dag)}/dagRuns`, {
        method: "POST", headers: { "content-type": "application/json", accept: "application/json" }, body: yes.dataset.confirm,
      });
      const said = await answer.json();
      if (!answer.ok) throw new Error(typeof said.detail === "string" ? said.detail : JSON.stringify(said.detail));
      const path = `dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(said.dag_run_id)}`, link = document.createElement("a");
      link.dataset.top = path;
      link.href = `${document.body.dataset.base}/${path}`;
      link.textContent = said.dag_run_id;
      say.className = "alert good";
      say.replaceChildren("The run has started: ", link);
      yes.remove();
    } catch (error) {
      say.className = "alert bad";
      say.textContent = error.message || "Airflow did not answer";
      yes.disabled = false;
    }
    return undefined;
  });
});
