/**
 * Moving and zooming by wheel, by one finger or two, by dragging, and by keys.
 *
 * The page must stay scrollable: at the whole map a wheel that goes out and a finger belong to the page, and so does a
 * wheel that was turning before the pointer came here.
 */

const STEP = 1.5; // of one press
const SPEED = 0.0022; // of a wheel, for each pixel it turns
const PAUSE = 300; // milliseconds after which a turn of the wheel is a new one
const SLACK = 4; // pixels that a click may move

/**
 * Let `zoom` be moved by what is done on `canvas`. `changed()` is told of it, `point(share)` of where the pointer is
 * (null: nowhere) and `pick(share)` of a click; shares are [across, down] of the canvas.
 */
export function gestures(canvas, { zoom, changed, point, pick }) {
  const down = new Map(); // pointers that press
  let moved = 0;
  let elsewhere = 0; // when the page was scrolled last
  const share = ({ clientX, clientY }) => {
    const box = canvas.getBoundingClientRect();
    return [(clientX - box.left) / box.width, (clientY - box.top) / box.height];
  };
  const act = (does) => {
    does(zoom());
    changed();
  };

  window.addEventListener("wheel", (event) => (elsewhere = event.defaultPrevented ? elsewhere : event.timeStamp), { passive: true });
  canvas.addEventListener("wheel", (event) => {
    const pinch = event.ctrlKey; // so a touchpad tells of two fingers
    const out = event.deltaY > 0;
    if (!pinch && (event.timeStamp - elsewhere < PAUSE || (out && zoom().isWhole))) return;
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1;
    act((it) => it.closer(Math.exp(-event.deltaY * lines * SPEED * (pinch ? 4 : 1)), ...share(event)));
    point(share(event)); // what is under it has changed
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    if (!down.size) moved = 0;
    down.set(event.pointerId, share(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const [before, now] = [down.get(event.pointerId), share(event)];
    if (!before) return point(now);
    down.set(event.pointerId, now);
    if (down.size === 2) return act((it) => pinched(it, down, before, now, event.pointerId));
    moved += Math.hypot(event.movementX, event.movementY);
    if (moved <= SLACK || zoom().isWhole) return point(now);
    if (!canvas.hasPointerCapture(event.pointerId)) canvas.setPointerCapture(event.pointerId);
    act((it) => it.move(before[0] - now[0], before[1] - now[1]));
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => {
    if (down.size > 1) moved = Infinity; // two fingers are no click
    down.delete(event.pointerId);
  });
  canvas.addEventListener("pointerleave", (event) => {
    down.delete(event.pointerId);
    point(null);
  });
  canvas.addEventListener("click", (event) => moved <= SLACK && pick(share(event)));

  for (const touch of ["touchstart", "touchmove"]) // two fingers are for the map, not for the page
    canvas.addEventListener(touch, (event) => event.touches.length > 1 && event.preventDefault(), { passive: false });

  canvas.addEventListener("keydown", (event) => {
    const does = {
      "+": (it) => it.closer(STEP), "=": (it) => it.closer(STEP), "-": (it) => it.closer(1 / STEP), 0: (it) => it.whole(),
      ArrowRight: (it) => it.move(0.2, 0), ArrowLeft: (it) => it.move(-0.2, 0), ArrowDown: (it) => it.move(0, 0.2), ArrowUp: (it) => it.move(0, -0.2),
    }[event.key];
    const scrolls = event.key.startsWith("Arrow") && zoom().isWhole; // the page
    if (!does || scrolls || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(does);
  });
}

/** Two fingers: the map follows them, about the middle between them. */
function pinched(zoom, down, before, now, moving) {
  const other = [...down].find(([pointer]) => pointer !== moving)[1];
  const apart = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]) || 1e-6;
  const middle = [0, 1].map((axis) => (before[axis] + other[axis]) / 2);
  zoom.closer(apart(now) / apart(before), ...middle);
  zoom.move((before[0] - now[0]) / 2, (before[1] - now[1]) / 2);
}
