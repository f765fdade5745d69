import type { Ablation, RunRecord } from './types';

export interface RunAsked {
  model: string;
  text?: string | null;
  source?: string | null;
  picture?: string | null;
  sound?: string | null;
  ids?: number[];
  /** Addresses that are kept from the first pass on, `*` for all. */
  capture?: string[];
  ablate?: Ablation[];
}

/** What the server says of a request that it refused. */
export async function refusal(answer: Response): Promise<Error> {
  try {
    const { error } = (await answer.json()) as { error?: string };
    return new Error(error ?? `The server answered ${answer.status}.`);
  } catch {
    return new Error(`The server answered ${answer.status}.`);
  }
}

/** Runs a model once, or finds the run again. Ending the signal ends the pass. */
export async function makeRun(asked: RunAsked, signal?: AbortSignal): Promise<RunRecord> {
  const body = Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== null && value !== undefined));
  const answer = await fetch('/api/v1/runs', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal,
  });
  if (!answer.ok) throw await refusal(answer);
  return (await answer.json()) as RunRecord;
}

/** A run that the server still keeps. */
export async function findRun(run: string, signal?: AbortSignal): Promise<RunRecord> {
  const answer = await fetch(`/api/v1/runs/${encodeURIComponent(run)}`, { signal });
  if (!answer.ok) throw await refusal(answer);
  return (await answer.json()) as RunRecord;
}

const LARGE = 1_500_000;
const SIDE = 1024;

/** Gives the server a picture; its name comes back. A large photograph is made smaller first. */
export async function givePicture(file: Blob): Promise<string> {
  const bytes = file.size > LARGE ? await smaller(file) : file;
  const answer = await fetch('/api/v1/pictures', { method: 'POST', body: bytes, headers: { 'content-type': 'application/octet-stream' } });
  if (!answer.ok) throw await refusal(answer);
  return ((await answer.json()) as { picture: string }).picture;
}

export async function giveSound(file: Blob): Promise<string> {
  const answer = await fetch('/api/v1/sounds', { method: 'POST', body: file, headers: { 'content-type': 'application/octet-stream' } });
  if (!answer.ok) throw await refusal(answer);
  return ((await answer.json()) as { sound: string }).sound;
}

async function smaller(file: Blob): Promise<Blob> {
  const picture = await createImageBitmap(file);
  const shrink = Math.min(1, SIDE / Math.max(picture.width, picture.height));
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(picture.width * shrink));
  canvas.height = Math.max(1, Math.round(picture.height * shrink));
  canvas.getContext('2d')?.drawImage(picture, 0, 0, canvas.width, canvas.height);
  picture.close();
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('The picture can’t be made smaller.'))), 'image/jpeg', 0.92),
  );
}
