/**
 * Plays the recording that was read, and tells where it is.
 */

import { element } from "./element.js";

export class Sound {
  /** @param moved called with the seconds that are being played, or null */
  constructor(moved) {
    Object.assign(this, { moved, blob: null, address: null });
    this.audio = element("audio", { preload: "auto" });
    this.button = element("button", { type: "button", class: "quiet", id: "play", on: { click: () => this.toggle() } }, "▶ Play");
    this.where = element("span", { class: "hint" });
    this.element = element("div", { class: "sound", hidden: true }, this.button, this.where, this.audio);
    for (const event of ["play", "pause", "ended", "error"]) this.audio.addEventListener(event, () => this.show());
  }

  /** Another recording, or none. */
  open(blob) {
    this.element.hidden = !blob;
    if (blob === this.blob) return;
    this.audio.pause();
    if (this.address) URL.revokeObjectURL(this.address);
    Object.assign(this, { blob, address: blob ? URL.createObjectURL(blob) : null });
    if (blob) this.audio.src = this.address;
    else this.audio.removeAttribute("src");
    this.where.textContent = "";
  }

  async toggle() {
    if (!this.audio.paused) return this.audio.pause();
    try {
      await this.audio.play();
    } catch {
      this.where.textContent = "This browser cannot play the recording.";
    }
  }

  /** The button, and the place while it plays. */
  show() {
    const playing = !this.audio.paused && !this.audio.ended;
    this.button.textContent = playing ? "Pause" : "▶ Play";
    const step = () => {
      if (this.audio.paused || this.audio.ended) return this.audio.ended && this.moved(null);
      this.moved(this.audio.currentTime);
      this.where.textContent = `${this.audio.currentTime.toFixed(1)} of ${this.audio.duration.toFixed(1)} s`;
      requestAnimationFrame(step);
    };
    step();
  }
}
