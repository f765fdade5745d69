import { Tensor, type Numbers } from './tensor';

/** What a frame of the live socket says, its arrays made into tensors. */
export interface Reply {
  id: string;
  seq: number;
  ms: number;
  last: boolean;
  data: any;
  arrays: Record<string, Tensor>;
  python: string;
  printed: number[];
  error: string | null;
}

export const MAGIC = 0x43484c44;
const HEADER = 16;

interface Place {
  name: string;
  shape: number[];
  dtype: 'f32' | 'i32' | 'u8';
  offset: number;
}

/** u32 magic, u32 seq, u32 length of the JSON, u32 length of the payload, JSON, payload; little-endian. */
export function decode(buffer: ArrayBuffer): Reply {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEADER || view.getUint32(0, true) !== MAGIC) throw new Error('this is not a frame of the Studio');
  const json = view.getUint32(8, true);
  const payload = view.getUint32(12, true);
  if (HEADER + json + payload !== buffer.byteLength) throw new Error('a frame was cut short');
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, HEADER, json)));
  return reply(head, (place) => [buffer, HEADER + json + place.offset]);
}

/** A reply from its JSON, wherever the bytes of its arrays lie. */
export function reply(head: any, bytes: (place: Place, index: number) => [ArrayBuffer, number]): Reply {
  const arrays: Record<string, Tensor> = {};
  ((head.arrays ?? []) as Place[]).forEach((place, index) => {
    const [buffer, offset] = bytes(place, index);
    const length = place.shape.reduce((a, b) => a * b, 1);
    arrays[place.name] = new Tensor(numbers(place.dtype, buffer, offset, length), place.shape);
  });
  return {
    id: String(head.id ?? ''),
    seq: Number(head.seq ?? 0),
    ms: Number(head.ms ?? 0),
    last: head.last !== false,
    data: head.data ?? null,
    arrays,
    python: head.python ?? '',
    printed: head.printed ?? [],
    error: head.error ?? null,
  };
}

function numbers(dtype: Place['dtype'], buffer: ArrayBuffer, offset: number, length: number): Numbers {
  const size = dtype === 'u8' ? 1 : 4;
  // Arrays inside a widget's message may lie anywhere; a typed array wants a multiple of its width.
  const from = offset % size === 0 ? buffer : buffer.slice(offset, offset + length * size);
  const start = from === buffer ? offset : 0;
  if (dtype === 'f32') return new Float32Array(from, start, length);
  if (dtype === 'i32') return new Int32Array(from, start, length);
  return new Uint8Array(from, start, length);
}
