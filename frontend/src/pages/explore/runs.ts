import type { Ablation, ModelRecord, RunRecord } from './types';

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

/** A model in the list of those that there are. */
export interface Listed {
  id: string;
  /** Why it can't be read. */
  error?: string;
  /** What to type to have it. */
  install?: string;
  snapshots?: string[];
}

/** What a model is to be run on: of what was given, that which it reads. */
export function runOf(model: ModelRecord, given: { text: string; source: string; picture: string; sound: string }, capture: string[] = []): RunAsked {
  return {
    model: model.id,
    text: model.reads.text && model.tokenizer ? given.text : null,
    ids: model.reads.text && !model.tokenizer ? idsIn(given.text) : undefined,
    source: model.reads.source ? given.source : null,
    picture: model.reads.picture ? given.picture || model.defaults.picture : null,
    sound: model.reads.sound ? given.sound || model.defaults.sound : null,
    capture,
  };
}

/** Of a model that came without a tokenizer, the text is its token ids. */
function idsIn(text: string): number[] {
  return (text.match(/\d{1,9}/g) ?? []).map(Number);
}

/** What the server answered. It tells what it refuses in an answer like any other: see `Telling` in explore/routes.py. */
export async function checked<T>(answer: Response): Promise<T> {
  const told = (await answer.json().catch(() => ({}))) as T & { error?: string };
  if (!answer.ok || told.error) throw new Error(told.error ?? `The server answered ${answer.status}.`);
  return told;
}

export async function listModels(signal?: AbortSignal): Promise<Listed[]> {
  const answer = await fetch('/api/v1/models', { signal });
  return answer.ok ? answer.json() : [];
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
  return checked<RunRecord>(answer);
}

/** A run that the server still keeps. */
export async function findRun(run: string, signal?: AbortSignal): Promise<RunRecord> {
  if (!/^[0-9a-f]{64}$/.test(run)) throw new Error('This is no name of a run.');
  const answer = await fetch(`/api/v1/runs/${encodeURIComponent(run)}`, { signal });
  return checked<RunRecord>(answer);
}

/** Bytes: the server takes no larger file. */
const MOST = 2_000_000;
const LARGE = 1_500_000;
const SIDE = 1024;

/** Gives the server a picture; its name comes back. A large photograph is made smaller first. */
export async function givePicture(file: Blob): Promise<string> {
  const bytes = file.size > LARGE ? await smaller(file) : file;
  const answer = await fetch('/api/v1/pictures', { method: 'POST', body: bytes, headers: { 'content-type': 'application/octet-stream' } });
  return (await checked<{ picture: string }>(answer)).picture;
}

export async function giveSound(file: Blob): Promise<string> {
  if (file.size > MOST) throw new Error('The file is larger than 2 MB; give a shorter piece of it.');
  const answer = await fetch('/api/v1/sounds', { method: 'POST', body: file, headers: { 'content-type': 'application/octet-stream' } });
  return (await checked<{ sound: string }>(answer)).sound;
}

async function smaller(file: Blob): Promise<Blob> {
  const picture = await createImageBitmap(file).catch(() => {
    throw new Error('This is no picture that can be read.');
  });
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
