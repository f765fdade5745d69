import { getContext, setContext } from 'svelte';
import type { Tensor } from '../../lib/tensor';
import { givePicture, giveSound, listModels, makeRun, type Listed, type RunAsked } from './runs';
import { tensor, type Part } from './tensors';
import type { RunRecord } from './types';

/** What the explorer asks beside operations: of a server in the Studio, of the kernel in a notebook. */
export interface Asking {
  /** Runs a model once, or finds the run again. Ending the signal ends the pass. */
  makeRun(asked: RunAsked, signal?: AbortSignal): Promise<RunRecord>;
  /** Part of what a run computed. u8sqrt comes as bytes, f32 as float32. */
  tensor(run: string, name: string, part?: Part, signal?: AbortSignal): Promise<Tensor>;
  /** The models that can be asked for. */
  models(signal?: AbortSignal): Promise<Listed[]>;
  /** How a reader's own files are given; in a notebook the caller gives them. */
  give: { picture(file: Blob): Promise<string>; sound(file: Blob): Promise<string> } | null;
}

const server: Asking = { makeRun, tensor, models: listModels, give: { picture: givePicture, sound: giveSound } };

const KEY = Symbol('asking');

export function provideAsking(asking: Asking): void {
  setContext(KEY, asking);
}

/** Whom this part of the page asks. Called while a component is made. */
export function asking(): Asking {
  return getContext<Asking | undefined>(KEY) ?? server;
}
