import { Tensor } from '../../lib/tensor';
import { refusal } from './runs';

export interface Part {
  layers?: string;
  heads?: string;
  rows?: string;
  cols?: string;
  /** The largest of each square of so many cells. */
  pool?: number;
  /** u8sqrt: bytes of 255 √x, for shares alone. */
  as?: 'u8sqrt' | 'f16' | 'f32';
}

/** Part of what a run computed. u8sqrt comes as bytes, the others as float32. */
export async function tensor(run: string, name: string, part: Part = {}, signal?: AbortSignal): Promise<Tensor> {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(part)) if (value !== undefined && value !== '') query.set(key, String(value));
  const answer = await fetch(`/api/v1/runs/${run}/tensor/${encodeURIComponent(name)}?${query}`, { signal });
  if (!answer.ok) throw await refusal(answer);
  const shape = (answer.headers.get('x-shape') ?? '').split(',').map(Number);
  const data = await answer.arrayBuffer();
  const kind = answer.headers.get('x-dtype');
  if (kind === 'u8') return new Tensor(new Uint8Array(data), shape);
  if (kind === 'f16') return new Tensor(Float32Array.from(new Uint16Array(data), half), shape);
  return new Tensor(new Float32Array(data), shape);
}

function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
