// What a page of the room does besides being read: regions and texts that light up together, zoom, and keys.
// Everything can be reached without it. It loads nothing and keeps nothing.
"use strict";

(() => {
  const LEVELS = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6];
  const SHARP_FROM = 1.5;

  const typing = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;

  // On a narrow screen the row of rooms scrolls: the one that a person is in is in sight.
  const room = document.querySelector(".top nav [aria-current]");
  const rooms = document.querySelector(".top nav");
  if (room) rooms.scrollLeft += room.getBoundingClientRect().left - rooms.getBoundingClientRect().left - 40;

  // Regions and their texts.
  const items = [...document.querySelectorAll(".regions > li[data-region]")];
  const boxes = new Map([...document.querySelectorAll(".box[data-region]")].map((box) => [box.dataset.region, box]));
  const pan = document.querySelector(".pan");

  // A link to a region, such as #text-7, keeps it lit while the mouse is elsewhere.
  const linked = () => /^#(?:text|box)-(\d+)$/.exec(location.hash)?.[1] ?? null;

  const light = (region) => {
    for (const item of items) item.classList.toggle("lit", item.dataset.region === region);
    for (const [name, box] of boxes) box.classList.toggle("lit", name === region);
  };

  // Only the picture's own frame moves: the page that a person reads stays where it is.
  const show = (region) => {
    const box = boxes.get(region);
    if (!box || !pan) return;
    const [frame, place] = [pan.getBoundingClientRect(), box.getBoundingClientRect()];
    if (place.top < frame.top || place.bottom > frame.bottom)
      pan.scrollTop += place.top - frame.top - (frame.height - Math.min(place.height, frame.height)) / 2;
    if (place.left < frame.left || place.right > frame.right)
      pan.scrollLeft += place.left - frame.left - (frame.width - Math.min(place.width, frame.width)) / 2;
  };

  for (const item of items) {
    const region = item.dataset.region;
    const link = item.querySelector(".tag a");
    item.addEventListener("mouseenter", () => light(region));
    item.addEventListener("mouseleave", () => light(linked()));
    link.addEventListener("focus", () => { light(region); show(region); });
    link.addEventListener("click", (event) => { event.preventDefault(); light(region); show(region); });
    link.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const next = step && items[items.indexOf(item) + step];
      if (!next) return;
      event.preventDefault();
      next.querySelector(".tag a").focus({ preventScroll: true });
      next.scrollIntoView({ block: "nearest" });
    });
  }
  // The words over the picture stand for the box below them, but a person who selects some goes nowhere.
  for (const box of [...boxes.values(), ...document.querySelectorAll(".words text")]) {
    const region = box.dataset.region;
    box.addEventListener("mouseenter", () => light(region));
    box.addEventListener("mouseleave", () => light(linked()));
    box.addEventListener("click", (event) => {
      const item = items.find((each) => each.dataset.region === region);
      if (!item) return;
      event.preventDefault();
      if (box.dataset.dragged || (box.matches(".words text") && !getSelection().isCollapsed)) return;
      item.scrollIntoView({ block: "nearest" });
      item.querySelector(".tag a").focus({ preventScroll: true });
    });
  }

  // Zoom of the picture.
  const viewer = document.querySelector(".viewer");
  if (viewer && pan) {
    const sheet = pan.querySelector(".sheet");
    const image = sheet.querySelector("img");
    const level = viewer.querySelector("output");
    const tool = (name) => viewer.querySelector(`[data-tool="${name}"]`);
    let at = 1;

    const zoom = (wanted) => {
      const [x, y] = ["scrollLeft", "scrollTop"].map((side, i) =>
        (pan[side] + [pan.clientWidth, pan.clientHeight][i] / 2) / [pan.scrollWidth, pan.scrollHeight][i]);
      at = Math.min(LEVELS.at(-1), Math.max(LEVELS[0], wanted));
      sheet.style.width = `${at * 100}%`;
      if (at >= SHARP_FROM && image.dataset.sharp) {
        image.src = image.dataset.sharp;
        delete image.dataset.sharp;
      }
      pan.scrollLeft = x * pan.scrollWidth - pan.clientWidth / 2;
      pan.scrollTop = y * pan.scrollHeight - pan.clientHeight / 2;
      pan.classList.toggle("grab", at > 1);
      level.value = `${Math.round(at * 100)}%`;
      tool("out").disabled = at <= LEVELS[0];
      tool("in").disabled = at >= LEVELS.at(-1);
    };
    const nearer = () => zoom(LEVELS.find((each) => each > at) ?? at);
    const farther = () => zoom(LEVELS.findLast((each) => each < at) ?? at);

    viewer.querySelector(".tools").hidden = false;
    tool("in").addEventListener("click", nearer);
    tool("out").addEventListener("click", farther);
    tool("fit").addEventListener("click", () => zoom(1));
    tool("boxes").addEventListener("click", (event) => {
      const bare = sheet.classList.toggle("bare");
      event.currentTarget.setAttribute("aria-pressed", String(!bare));
    });
    tool("words")?.addEventListener("click", (event) => {
      const still = sheet.classList.toggle("still");
      event.currentTarget.setAttribute("aria-pressed", String(!still));
    });
    const selects = (event) => event.target.closest(".words") !== null;
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      const act = { "+": nearer, "=": nearer, "-": farther, 0: () => zoom(1) }[event.key];
      if (act) { event.preventDefault(); act(); }
    });
    pan.addEventListener("dblclick", (event) => { if (!selects(event)) zoom(at > 1 ? 1 : 2); });
    pan.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      if (event.deltaY < 0) nearer(); else farther();
    }, { passive: false });

    // Dragging with the mouse; fingers scroll by themselves.
    let held = null;
    pan.addEventListener("pointerdown", (event) => {
      for (const box of boxes.values()) delete box.dataset.dragged;
      if (event.pointerType === "mouse" && event.button === 0 && at > 1 && !selects(event))
        held = { x: event.clientX + pan.scrollLeft, y: event.clientY + pan.scrollTop };
    });
    addEventListener("pointermove", (event) => {
      if (!held) return;
      const [left, top] = [held.x - event.clientX, held.y - event.clientY];
      if (Math.abs(left - pan.scrollLeft) + Math.abs(top - pan.scrollTop) > 3) {
        pan.classList.add("grabbed");
        for (const box of boxes.values()) box.dataset.dragged = "yes";
      }
      pan.scrollLeft = left;
      pan.scrollTop = top;
    });
    addEventListener("pointerup", () => { held = null; pan.classList.remove("grabbed"); });
    image.addEventListener("dragstart", (event) => event.preventDefault());
    for (const box of boxes.values()) box.addEventListener("dragstart", (event) => event.preventDefault());
    zoom(1);

    // What was searched for is in sight.
    const found = items.find((item) => item.classList.contains("held"));
    if (found) show(found.dataset.region);
  }

  const follow = () => { light(linked()); show(linked()); };
  addEventListener("hashchange", follow);
  if (linked()) follow();

  // In one column the view is below the picture: a tab leads there, and the head does not cover it.
  if (matchMedia("(max-width: 60rem)").matches)
    for (const tab of document.querySelectorAll("#view a")) tab.hash = "view";
  const head = document.querySelector(".top");
  if (getComputedStyle(head).position === "sticky")
    document.documentElement.style.scrollPaddingTop = `${head.offsetHeight + 16}px`;

  for (const button of document.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) break;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.querySelector(button.dataset.copy).textContent);
      button.textContent = button.dataset.copied;
    });
  }

  // A file that is dropped anywhere on the first page is read.
  const drop = document.querySelector("form.drop");
  if (drop) {
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
      event.preventDefault();
      if (event.dataTransfer.files.length !== 1) return;
      drop.querySelector("input[type=file]").files = event.dataTransfer.files;
      drop.requestSubmit();
    });
  }

  // From page to page.
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (typing(event.target)) return;
    const scrolls = event.target.closest(".pan, .grid, .scroll, .tabs");
    if (scrolls && scrolls.scrollWidth > scrolls.clientWidth) return;
    // From nowhere in particular, up and down begin with the regions; from one of them they have gone on already.
    if (event.target === document.body && items.length && ["ArrowDown", "ArrowUp"].includes(event.key)) {
      event.preventDefault();
      const first = items.find((item) => item.dataset.region === linked()) ?? items.at(event.key === "ArrowDown" ? 0 : -1);
      first.querySelector(".tag a").focus({ preventScroll: true });
      first.scrollIntoView({ block: "nearest" });
      return;
    }
    const jump = event.key === "g" && document.querySelector(".jump input");
    if (jump) { event.preventDefault(); jump.focus(); return; }
    const link = document.querySelector(`a[data-key="${event.key}"]`);
    if (link) { event.preventDefault(); link.click(); }
  });
})();
