import { Tensor } from '../../lib/tensor';
import { checked } from './runs';

export interface Part {
  layers?: string;
  heads?: string;
  rows?: string;
  cols?: string;
  /** Of the heads, the largest at each cell, as one. */
  most?: boolean;
  /** The largest of each square of so many cells. */
  pool?: number;
  /** u8sqrt: bytes of 255 √x, for shares alone. */
  as?: 'u8sqrt' | 'f32';
}

/** Part of what a run computed. u8sqrt comes as bytes, f32 as float32. */
export async function tensor(run: string, name: string, part: Part = {}, signal?: AbortSignal): Promise<Tensor> {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(part)) if (value !== undefined && value !== '') query.set(key, String(value));
  const answer = await fetch(`/api/v1/runs/${run}/tensor/${encodeURIComponent(name)}?${query}`, { signal });
  if (!answer.headers.has('x-shape')) await checked(answer);
  const shape = (answer.headers.get('x-shape') ?? '').split(',').map(Number);
  const data = await answer.arrayBuffer();
  if (answer.headers.get('x-dtype') === 'u8') return new Tensor(new Uint8Array(data), shape);
  return new Tensor(new Float32Array(data), shape);
}
