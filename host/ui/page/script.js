// Keeps a page as it is on disk: when the server says that something changed, the page is fetched again, and what differs
// is changed in place, so that focus, open dialogs and what was typed or ticked stay. Pages work without this.
"use strict";
(() => {
  const live = () => document.getElementById("live");
  let source, version = document.body.dataset.version, busy = false, wanted = null;

  const say = (text, state) => {
    live().textContent = text;
    live().dataset.state = state;
  };

  // morph makes a like b. Elements are the same where their ids are, else by their place.
  function morph(a, b) {
    if (b.dataset && "same" in b.dataset || a.isEqualNode(b)) return; // the server knows that we have it
    if (a.nodeName !== b.nodeName || (a.id || "") !== (b.id || "")) {
      a.replaceWith(document.importNode(b, true));
      return;
    }
    if (a.nodeType !== Node.ELEMENT_NODE) {
      a.nodeValue = b.nodeValue;
      return;
    }
    for (const { name, value } of b.attributes)
      if (name !== "open" && a.getAttribute(name) !== value) a.setAttribute(name, value);
    for (const { name } of [...a.attributes])
      if (name !== "open" && name !== "data-loaded" && !b.hasAttribute(name)) a.removeAttribute(name);
    if (a.dataset.loaded) return load(a, true);
    children(a, b);
  }

  function children(a, b) {
    const named = new Map();
    for (const c of a.children) if (c.id) named.set(c.id, c);
    let at = a.firstChild;
    for (const want of [...b.childNodes]) {
      const known = want.id && named.get(want.id);
      if (known) {
        if (known !== at) a.insertBefore(known, at);
        else at = at.nextSibling;
        named.delete(want.id);
        morph(known, want);
      } else if (at && !at.id && !want.id && at.nodeName === want.nodeName) {
        const next = at.nextSibling;
        morph(at, want);
        at = next;
      } else a.insertBefore(document.importNode(want, true), at);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  async function page(url, headers = {}) {
    const answer = await fetch(url, { credentials: "same-origin", cache: "no-store", headers });
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!next.querySelector("main")) throw new Error("status " + answer.status);
    return next;
  }

  async function refresh(to) {
    wanted = to;
    if (busy) return;
    busy = true;
    try {
      while (wanted !== version) {
        const now = wanted, next = await page(location.href, { "Hutch-Version": now, "Hutch-Has": version });
        document.title = next.title;
        const text = live().textContent, state = live().dataset.state;
        children(document.querySelector("main"), next.querySelector("main"));
        children(document.querySelector("footer.status"), next.querySelector("footer.status"));
        say(text, state);
        version = next.body.dataset.version; // at least as new as what was wanted
        if (wanted === now) wanted = version;
        document.body.dataset.version = version;
        if (dialog.open) load(dialog, true);
      }
      say("Live", "on");
    } catch (e) {
      wanted = version;
      say("Not up to date: " + e.message, "off");
    }
    busy = false;
  }

  // load fetches the part of a page that a box is for: the difference of a file, or what can be done with a sandbox.
  async function load(box, again) {
    if (box.dataset.loaded && !again) return;
    box.dataset.loaded = "1";
    try {
      const part = (await page(box.dataset.src)).querySelector(box.dataset.part), next = document.createElement("div");
      next.append(part || "It is not there any more.");
      children(box, next);
    } catch (e) {
      delete box.dataset.loaded;
      box.textContent = "It cannot be loaded: " + e.message;
    }
  }
  document.addEventListener("toggle", (e) => {
    const box = e.target.open && e.target.querySelector && e.target.querySelector(".lazy");
    if (box) load(box);
  }, true);
  const dialog = document.getElementById("dialog");
  document.addEventListener("click", async (e) => {
    const link = e.target.closest("a[data-open]");
    if (!link || e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    dialog.replaceChildren();
    dialog.dataset.src = link.href;
    await load(dialog, true);
    dialog.showModal();
  });

  // Of a file either the whole is ticked, or hunks of it; either the sandbox's version is taken, or places are chosen.
  document.addEventListener("change", (e) => {
    const file = e.target.checked && e.target.closest(".file"), name = e.target.name.split(".")[0];
    const other = { path: "[name=hunk]", hunk: "[name=path]", take: "[name^='place.']", place: "[name=take]" }[name];
    if (file && other) for (const box of file.querySelectorAll(other)) box.checked = false;
  });

  // A hidden window listens to nothing: browsers have few connections for one server.
  function listen() {
    if (document.hidden) {
      if (source) source.close();
      source = null;
      return;
    }
    if (source) return;
    source = new EventSource(document.body.dataset.events);
    source.onopen = () => say("Live", "on");
    source.onmessage = (e) => refresh(e.data);
    source.onerror = () => {
      say("Not connected: is hutch ui running?", "off");
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(listen, 2000);
      }
    };
  }
  document.addEventListener("visibilitychange", listen);
  listen();
})();
