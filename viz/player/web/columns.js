// Unpacks columns of numbers that `pack` in runs.py packed: deflated, grouped by byte significance.

const TYPES = {u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f8: Float64Array};

/** Returns a column as a typed array. Columns in lists are inflated only when a rank is opened. */
export async function inflateColumn({type, length, text}) {
  const packed = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const width = TYPES[type].BYTES_PER_ELEMENT,
    bytes = new Uint8Array(length * width);
  for (let plane = 0; plane < width; plane++) {
    for (let i = 0, from = plane * length; i < length; i++) bytes[i * width + plane] = planes[from + i];
  }
  return new TYPES[type](bytes.buffer);
}

/** Replaces every column in a JSON value with a typed array. */
export async function inflate(value) {
  if (Array.isArray(value)) return typeof value[0] === 'object' ? Promise.all(value.map(inflate)) : value;
  if (value === null || typeof value !== 'object') return value;
  if (TYPES[value.type] && typeof value.text === 'string') return inflateColumn(value);
  const entries = Object.entries(value).map(async ([key, inner]) => [key, await inflate(inner)]);
  return Object.fromEntries(await Promise.all(entries));
}
