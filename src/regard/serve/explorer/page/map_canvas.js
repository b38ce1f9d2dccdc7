/**
 * All small maps on one canvas that lies beneath their buttons.
 *
 * A browser makes a layer of every canvas and goes through all layers in every frame: four hundred canvases cost 25 ms
 * a frame, whatever else changes on the page, and one costs nothing. Where a map goes is where its button is, so the
 * style alone says how the grid is laid out; when its size changes everything is drawn again.
 */

import { painted } from "./colours.js";
import { element } from "./element.js";

export class MapCanvas {
  /** @param size cells to a side of a small map @param {HTMLElement} frame holds the buttons; the sheet lies in it */
  constructor(frame, size) {
    Object.assign(this, { frame, size, maps: new Map() });
    this.canvas = element("canvas", { class: "sheet", "aria-hidden": "true" });
    this.small = element("canvas", { width: size, height: size });
    this.pen = this.canvas.getContext("2d");
    frame.prepend(this.canvas);
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(frame);
  }

  /** Maps under some buttons: [button, bytes, how strong the largest of them is]. */
  put(maps) {
    for (const [button, ...map] of maps) this.maps.set(button, map);
    this.draw(maps.map(([button]) => button));
  }

  /** Draw everything again: the colours have changed. */
  repaint() {
    this.draw([...this.maps.keys()]);
  }

  /** Nothing is drawn on it any more. */
  end() {
    this.watch.disconnect();
  }

  /** As many pixels as the screen has beneath it. */
  fit() {
    const { clientWidth, clientHeight } = this.frame;
    this.sharp = devicePixelRatio;
    this.canvas.width = Math.round(clientWidth * this.sharp);
    this.canvas.height = Math.round(clientHeight * this.sharp);
    this.repaint();
  }

  draw(buttons) {
    if (!this.sharp) return; // it is laid out first
    const { pen, sharp, small, size } = this;
    const from = this.frame.getBoundingClientRect();
    const boxes = buttons.map((button) => button.getBoundingClientRect());
    pen.imageSmoothingEnabled = false;
    buttons.forEach((button, k) => {
      const [bytes, strong] = this.maps.get(button);
      small.getContext("2d").putImageData(painted(bytes, size, size, strong), 0, 0);
      const [x, y, right, bottom] = [boxes[k].left - from.left, boxes[k].top - from.top, boxes[k].right - from.left, boxes[k].bottom - from.top].map((edge) => Math.round(edge * sharp));
      pen.save();
      pen.beginPath();
      pen.roundRect(x, y, right - x, bottom - y, 4 * sharp);
      pen.clip();
      pen.drawImage(small, x, y, right - x, bottom - y);
      pen.restore();
    });
  }
}
