import { getContext, setContext } from 'svelte';

const KEY = Symbol('widget');

export function markWidget(): void {
  setContext(KEY, true);
}

/** Whether this part of the page lives in a notebook's output. Called while a component is made. */
export function inWidget(): boolean {
  return getContext<boolean | undefined>(KEY) ?? false;
}
