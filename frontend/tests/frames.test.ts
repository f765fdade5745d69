import { describe, expect, it } from 'vitest';
import { decode, MAGIC, reply } from '../src/lib/frames';

function frame(head: object, payload: Uint8Array, seq = 3): ArrayBuffer {
  let json = JSON.stringify(head);
  while ((16 + new TextEncoder().encode(json).length) % 8) json += ' ';
  const text = new TextEncoder().encode(json);
  const bytes = new Uint8Array(16 + text.length + payload.length);
  const view = new DataView(bytes.buffer);
  [MAGIC, seq, text.length, payload.length].forEach((word, i) => view.setUint32(4 * i, word, true));
  bytes.set(text, 16);
  bytes.set(payload, 16 + text.length);
  return bytes.buffer;
}

describe('frames', () => {
  const payload = new Uint8Array(new Float32Array([1.5, -2, Infinity, 0.25]).buffer.byteLength + 3);
  payload.set(new Uint8Array(new Float32Array([1.5, -2, Infinity, 0.25]).buffer));
  payload.set([9, 8, 7], 16);
  const head = {
    id: 'live1', seq: 3, ms: 1.5, last: true, data: { word: '“ü”' }, python: 'print(1)', printed: [1],
    arrays: [{ name: 'm', shape: [2, 2], dtype: 'f32', offset: 0 }, { name: 'b', shape: [3], dtype: 'u8', offset: 16 }],
  };

  it('are read', () => {
    const read = decode(frame(head, payload));
    expect(read.id).toBe('live1');
    expect(read.data.word).toBe('“ü”');
    expect(read.arrays.m.shape).toEqual([2, 2]);
    expect(read.arrays.m.at(1, 0)).toBe(Infinity);
    expect(read.arrays.b.list()).toEqual([9, 8, 7]);
    expect(read.error).toBeNull();
  });

  it('of an error have no data', () => {
    const read = decode(frame({ id: 'x', seq: 3, last: true, error: 'too long' }, new Uint8Array()));
    expect([read.error, read.data, read.last]).toEqual(['too long', null, true]);
  });

  it('cut short or foreign are refused', () => {
    const whole = frame(head, payload);
    expect(() => decode(whole.slice(0, whole.byteLength - 1))).toThrow(/cut short/);
    expect(() => decode(new ArrayBuffer(8))).toThrow(/not a frame/);
    expect(() => decode(new ArrayBuffer(64))).toThrow(/not a frame/);
  });

  it('whose arrays lie at odd places are read too', () => {
    const bytes = new Uint8Array(9);
    bytes.set(new Uint8Array(new Float32Array([2.5, -1]).buffer), 1);
    const read = reply({ arrays: [{ name: 'a', shape: [2], dtype: 'f32', offset: 1 }] }, () => [bytes.buffer, 1]);
    expect(read.arrays.a.list()).toEqual([2.5, -1]);
  });
});
