// Zoom and drag by mouse and touch: the lanes zoom time, the stage zooms the network.

import {pause, seek} from './clock.js';
import {abs, clamp, hypot} from './format.js';
import {clickStage, hoverLanes, hoverStage, isIn, laneAt, runAt, within} from './hover.js';
import {onLanes, RULER} from './lanes.js';
import {onStage} from './stage.js';
import {lanes, stage, tell, view} from './state.js';

const pointers = new Map();
let drag = null;

function zoomTime(share, factor) {
  const width = clamp((view.to - view.from) * factor, 1e-4, 1),
    at = view.from + share * (view.to - view.from);
  view.from = clamp(at - share * width, 0, 1 - width);
  view.to = view.from + width;
  tell.draw();
}

function panTime(shift) {
  const width = view.to - view.from;
  view.from = clamp(view.from + shift, 0, 1 - width);
  view.to = view.from + width;
  tell.draw();
}

/** Zooms the stage around a point. */
function zoomStage(x, y, factor) {
  const {zoom} = view,
    scale = clamp(zoom.scale * factor, 1, 12),
    by = scale / zoom.scale;
  const pane = onStage.panes.find(one => isIn([one.x, one.y, one.w, one.h], x, y)) || onStage.panes[0];
  const [cx, cy] = runAt(x, y).places?.middle || [pane.x + pane.w / 2, pane.y + pane.h / 2 + 4];
  view.zoom =
    scale === 1
      ? {scale, x: 0, y: 0}
      : {
          scale,
          x: x - cx - (x - cx - zoom.x) * by,
          y: y - cy - (y - cy - zoom.y) * by,
        };
  tell.draw();
}

const spread = () => {
  const [one, other] = [...pointers.values()];
  return {far: hypot(one.x - other.x, one.y - other.y) || 1, x: (one.x + other.x) / 2, y: (one.y + other.y) / 2};
};

function pinch(canvas, before) {
  const now = spread(),
    factor = now.far / before.far;
  if (canvas === stage) zoomStage(now.x, now.y, factor);
  else {
    const box = onLanes.boxes[0];
    zoomTime(clamp((now.x - box.x) / box.w, 0, 1), 1 / factor);
  }
}

export function down(event) {
  const canvas = event.currentTarget,
    [x, y] = within(canvas, event);
  pointers.set(event.pointerId, {x, y});
  canvas.setPointerCapture(event.pointerId);
  drag = {canvas, x, y, moved: false, pans: canvas === stage || y < RULER, zoom: {...view.zoom}, from: view.from};
  if (canvas === lanes && !drag.pans && pointers.size === 1) {
    pause();
    seek(laneAt(event).x);
  }
}

export function move(event) {
  const canvas = event.currentTarget,
    [x, y] = within(canvas, event);
  if (!pointers.has(event.pointerId)) return canvas === stage ? hoverStage(event) : hoverLanes(event);
  const before = pointers.size === 2 ? spread() : null;
  pointers.set(event.pointerId, {x, y});
  if (before) {
    drag.moved = true;
    return pinch(canvas, before);
  }
  if (abs(x - drag.x) + abs(y - drag.y) > 4) drag.moved = true;
  if (!drag.pans) return seek(laneAt(event).x);
  if (canvas === lanes)
    return panTime(drag.from - view.from - ((x - drag.x) / onLanes.boxes[0].w) * (view.to - view.from));
  if (view.zoom.scale > 1) {
    view.zoom = {...drag.zoom, x: drag.zoom.x + x - drag.x, y: drag.zoom.y + y - drag.y};
    tell.draw();
  }
}

export function up(event) {
  const wasClick = event.type === 'pointerup' && drag && !drag.moved && pointers.size === 1;
  pointers.delete(event.pointerId);
  for (const left of pointers.values()) Object.assign(drag, left, {zoom: {...view.zoom}, from: view.from});
  if (wasClick && event.currentTarget === stage) clickStage(event);
}

export function wheel(event) {
  event.preventDefault();
  const [x, y] = within(event.currentTarget, event),
    factor = 1.0018 ** event.deltaY;
  if (event.currentTarget === stage) return zoomStage(x, y, 1 / factor);
  const {box, px} = laneAt(event);
  if (abs(event.deltaX) > abs(event.deltaY)) panTime((event.deltaX / box.w) * (view.to - view.from));
  else zoomTime(clamp((px - box.x) / box.w, 0, 1), factor);
}
