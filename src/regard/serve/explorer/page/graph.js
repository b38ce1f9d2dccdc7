/**
 * Tokens as the nodes of a graph, joined by its edges: drag to turn it, point at a node, click to pin it.
 *
 * It is a cloud of points seen from above. The places come with the inspection; nodes have their names where these fit.
 */

import { dark } from "./colours.js";
import { PointCloud, SIZE } from "./point_cloud.js";
import { word } from "./token_text.js";

const MAX_NAMED = 60; // nodes that have their names beside them
const HEAD = 14; // pixels of the head of an arrow

/** The same functions as `Chips`. */
export class Graph extends PointCloud {
  prepare() {
    const many = this.axis.positions.length;
    Object.assign(this, { unit: "node ", opaque: true, turn: 0, lift: Math.PI / 2, radius: Math.max(2.5, Math.min(11, 60 / Math.sqrt(many))) });
    const joined = this.axis.positions.map(({ to }) => new Set(to));
    this.edges = joined.flatMap((ends, from) => [...ends].map((end) => ({ from, end, both: joined[end].has(from) })));
    this.edges = this.edges.filter(({ from, end, both }) => !both || from <= end);
  }

  place({ place }) {
    return place && [...place, 0];
  }

  view(turn) {
    super.view(turn, Math.PI / 2);
  }

  draw() {
    super.draw();
    if (this.seen.length <= MAX_NAMED) this.names(this.canvas.getContext("2d"));
  }

  backdrop(pen) {
    const at = new Map(this.seen.map((one) => [one.index, one]));
    pen.strokeStyle = pen.fillStyle = dark() ? "#5b6372" : "#aab0bd";
    pen.lineWidth = 2;
    for (const { from, end, both } of this.edges) {
      const [a, b] = [at.get(from), at.get(end)];
      pen.beginPath();
      if (from === end) pen.arc(a.x, a.y - this.radius - 3, 6, 0, 2 * Math.PI);
      pen.moveTo(a.x, a.y);
      pen.lineTo(b.x, b.y);
      pen.stroke();
      if (!both && from !== end) this.arrow(pen, a, b);
    }
  }

  arrow(pen, a, b) {
    const far = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const [right, down] = [(b.x - a.x) / far, (b.y - a.y) / far];
    const [x, y] = [b.x - right * (this.radius + 2), b.y - down * (this.radius + 2)];
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x - HEAD * right + 0.4 * HEAD * down, y - HEAD * down - 0.4 * HEAD * right);
    pen.lineTo(x - HEAD * right - 0.4 * HEAD * down, y - HEAD * down + 0.4 * HEAD * right);
    pen.fill();
  }

  names(pen) {
    const size = this.seen.length > 25 ? 20 : 28; // the canvas is shown smaller than it is
    pen.font = `${size}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.fillStyle = dark() ? "#e6e8ee" : "#20242c";
    pen.strokeStyle = dark() ? "#171a21" : "#ffffff";
    pen.lineWidth = 6;
    for (const { index, x, y } of this.seen) {
      const name = word(this.axis, index);
      const short = name.length > 14 ? `${name.slice(0, 13)}…` : name;
      const inside = Math.max(30, Math.min(SIZE - 30, x));
      pen.strokeText(short, inside, y + this.radius + size); // edges pass behind it
      pen.fillText(short, inside, y + this.radius + size);
    }
  }
}
