// Drawing primitives of a canvas.

import {min, round} from './format.js';
import {view} from './state.js';

const FONT = 'system-ui,sans-serif';

/** Maximum pixels per point during playback; reduced if frames are late. */
export const sharpness = {most: 2};

/** Clears a canvas; returns its context, scaled to points, and its width and height. */
export function clear(canvas) {
  const ratio = min(devicePixelRatio || 1, view.playing ? sharpness.most : 2);
  const w = canvas.clientWidth,
    h = canvas.clientHeight;
  if (canvas.width !== round(w * ratio) || canvas.height !== round(h * ratio)) {
    canvas.width = round(w * ratio);
    canvas.height = round(h * ratio);
  }
  const g = canvas.getContext('2d');
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, w, h);
  return [g, w, h];
}

export const fade = (g, share) => {
  g.globalAlpha = share;
};

export function pen(g, color, width) {
  g.strokeStyle = color;
  g.lineWidth = width;
}

export function write(g, words, x, y, px, color, align = 'left', bold = false) {
  g.font = `${bold ? '700 ' : ''}${px}px ${FONT}`;
  g.textAlign = align;
  g.textBaseline = 'middle';
  g.fillStyle = color;
  g.fillText(words, x, y);
}

export function widthOf(g, words, px) {
  g.font = `700 ${px}px ${FONT}`;
  return g.measureText(words).width;
}

export function area(g, color, x, y, w, h) {
  g.fillStyle = color;
  g.fillRect(x, y, w, h);
}

function finish(g, fill, stroke, width) {
  if (fill) {
    g.fillStyle = fill;
    g.fill();
  }
  if (stroke) {
    pen(g, stroke, width);
    g.stroke();
  }
}

export function dot(g, x, y, radius, fill, stroke, width) {
  g.beginPath();
  g.arc(x, y, radius, 0, 7);
  finish(g, fill, stroke, width);
}

export function slab(g, x, y, w, h, radius, fill, stroke, width) {
  g.beginPath();
  g.roundRect(x, y, w, h, radius);
  finish(g, fill, stroke, width);
}

export function line(g, x1, y1, x2, y2) {
  g.beginPath();
  g.moveTo(x1, y1);
  g.lineTo(x2, y2);
  g.stroke();
}

export function cross(g, x, y, reach) {
  line(g, x - reach, y - reach, x + reach, y + reach);
  line(g, x - reach, y + reach, x + reach, y - reach);
}

export function clipTo(g, x, y, w, h) {
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
}

/** Draws a filled label around a point. */
export function label(g, words, x, y, fill, ink) {
  const w = widthOf(g, words, 12) + 16;
  slab(g, x - w / 2, y - 11, w, 22, 5, fill);
  write(g, words, x, y + 0.5, 12, ink, 'center', true);
}
