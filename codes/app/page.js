// Before and after: one divider and one zoom for both halves, kept as CSS variables of the document, so that they survive
// new results. Listeners are on the document because Gradio replaces the results.
(() => {
  const root = document.documentElement;
  const view = { at: 50, zoom: 1, x: 0, y: 0 };  // x, y: shift of the image in units of the viewer
  const pointers = new Map();
  let drag = null;  // 'divider' or 'photo'
  let spread = 0;  // distance of two fingers

  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  function apply() {
    view.zoom = clamp(view.zoom, 1, 16);
    view.x = clamp(view.x, 1 - view.zoom, 0);
    view.y = clamp(view.y, 1 - view.zoom, 0);
    view.at = clamp(view.at, 0, 100);
    root.style.setProperty("--at", `${view.at}%`);
    root.style.setProperty("--zoom", view.zoom);
    root.style.setProperty("--x", `${100 * view.x}%`);
    root.style.setProperty("--y", `${100 * view.y}%`);
    root.toggleAttribute("data-zoomed", view.zoom > 1);
    for (const divider of document.querySelectorAll(".viewer .divider")) {
      divider.setAttribute("aria-valuenow", Math.round(view.at));
    }
  }

  function place(viewer, event) {
    const box = viewer.getBoundingClientRect();
    return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
  }

  function zoomTo(zoom, point) {  // the point of the viewer stays where it is
    const factor = clamp(zoom, 1, 16) / view.zoom;
    view.x = point.x - factor * (point.x - view.x);
    view.y = point.y - factor * (point.y - view.y);
    view.zoom *= factor;
    apply();
  }

  function pixelZoom(viewer) {  // one pixel of the photo is one of the screen, or twice as large where that is no zoom
    const zoom = Number(viewer.dataset.width) / (viewer.clientWidth * (window.devicePixelRatio || 1));
    return zoom > 1.2 ? zoom : 2;
  }

  let style = null;
  function choose(number) {
    if (style === null) document.head.append(style = document.createElement("style"));
    style.textContent = number === null ? "" :
      `.photo:not([data-photo="${number}"]) { display: none !important }` +
      `.photo[data-photo="${number}"] { display: block !important }` +
      `.photos button[data-photo="${number}"] { border-color: var(--color-accent) !important }`;
    Object.assign(view, { zoom: 1, x: 0, y: 0 });
    apply();
  }

  document.addEventListener("click", (event) => {
    const photo = event.target.closest(".photos button[data-photo]");
    if (photo !== null) choose(Number(photo.dataset.photo));
    if (event.target.closest("#run") !== null) choose(null);
    const button = event.target.closest(".viewer [data-zoom]");
    if (button === null) return;
    const factor = { in: 1.5, out: 1 / 1.5, fit: 0 }[button.dataset.zoom];
    zoomTo(view.zoom * factor, { x: 0.5, y: 0.5 });
  });

  document.addEventListener("dblclick", (event) => {
    const viewer = event.target.closest(".viewer");
    if (viewer === null || event.target.closest(".tools") !== null) return;
    zoomTo(view.zoom > 1 ? 1 : pixelZoom(viewer), place(viewer, event));
  });

  document.addEventListener("wheel", (event) => {  // a pinch on a touchpad arrives as a wheel with Ctrl
    const viewer = event.target.closest(".viewer");
    if (viewer === null || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    zoomTo(view.zoom * Math.exp(-event.deltaY / 200), place(viewer, event));
  }, { passive: false });

  document.addEventListener("keydown", (event) => {
    if (event.target.closest(".viewer .divider") === null) return;
    const step = { ArrowLeft: -2, ArrowDown: -2, ArrowRight: 2, ArrowUp: 2, Home: -100, End: 100 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    view.at += step;
    apply();
  });

  document.addEventListener("pointerdown", (event) => {
    const viewer = event.target.closest(".viewer");
    if (viewer === null || event.target.closest(".tools") !== null) return;
    pointers.set(event.pointerId, { viewer, x: event.clientX, y: event.clientY });
    drag = event.target.closest(".divider") !== null || view.zoom === 1 ? "divider" : "photo";
    spread = 0;
    if (drag === "divider" && event.pointerType === "mouse" && event.target.closest(".divider") === null) {
      view.at = 100 * place(viewer, event).x;
      apply();
    }
  });

  document.addEventListener("pointermove", (event) => {
    const last = pointers.get(event.pointerId);
    if (last === undefined) return;
    const { viewer } = last;
    const box = viewer.getBoundingClientRect();
    if (pointers.size === 2) {
      pointers.set(event.pointerId, { viewer, x: event.clientX, y: event.clientY });
      const [a, b] = [...pointers.values()];
      const now = Math.hypot(a.x - b.x, a.y - b.y);
      const middle = { clientX: (a.x + b.x) / 2, clientY: (a.y + b.y) / 2 };
      if (spread > 0) zoomTo(view.zoom * now / spread, place(viewer, middle));
      spread = now;
      return;
    }
    if (drag === "divider") {
      view.at = 100 * place(viewer, event).x;
    } else {
      view.x += (event.clientX - last.x) / box.width;
      view.y += (event.clientY - last.y) / box.height;
    }
    pointers.set(event.pointerId, { viewer, x: event.clientX, y: event.clientY });
    apply();
  });

  for (const name of ["pointerup", "pointercancel"]) {
    document.addEventListener(name, (event) => {
      pointers.delete(event.pointerId);
      spread = 0;
    });
  }
})();
