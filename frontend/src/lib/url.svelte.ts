import { getContext, setContext } from 'svelte';
import { SvelteMap } from 'svelte/reactivity';
import type { Codec } from './codec';
import { route } from './router.svelte';

export { choice, flag, integer, integers, number, numbers, text, type Codec } from './codec';

/** Where state is kept: the address of the page, or the memory of a widget. */
export interface Store {
  get(key: string): string | undefined;
  set(key: string, value: string | null): void;
}

const address: Store = {
  get: (key) => route.query.get(key),
  set: (key, value) => route.set(key, value),
};

/**
 * State that lives as long as a widget. It starts from what the caller of the widget named. A widget of one figure needs
 * no prefixes; where it has `several`, their keys are kept apart by them, as they are in an address.
 */
export function memory(initial: Record<string, string> = {}, several = false): Store & { entries(): [string, string][] } {
  const held = new SvelteMap(Object.entries(initial));
  const plain = (key: string) => (several ? key : key.slice(key.lastIndexOf('.') + 1));
  return {
    get: (key) => held.get(plain(key)),
    set: (key, value) => {
      if (value === null) held.delete(plain(key));
      else held.set(plain(key), value);
    },
    entries: () => [...held],
  };
}

const KEY = Symbol('state');
export function provideStore(store: Store): void {
  setContext(KEY, store);
}

export type State<S> = { [K in keyof S]: S[K] extends Codec<infer T> ? T : never };

/**
 * State kept in the query string. Each key reads as its value and is set like one; the initial values are left out of
 * the address, and what is not a value of its codec reads as the initial one.
 *
 * The keys of all figures of a page must differ: give all but the main one a prefix ("clock" makes "clock.pos").
 */
export function urlState<S extends Record<string, Codec<any>>>(spec: S, prefix = ''): State<S> {
  const store = getContext<Store | undefined>(KEY) ?? address;
  const state = {} as State<S>;
  for (const [name, codec] of Object.entries(spec)) {
    const key = prefix ? `${prefix}.${name}` : name;
    const plain = codec.encode(codec.initial);
    // A list is a new object at each reading, so that a caller who changes it in place changes nothing behind our back.
    Object.defineProperty(state, name, {
      enumerable: true,
      get: () => {
        const held = store.get(key);
        return (held === undefined ? null : codec.decode(held)) ?? codec.initial;
      },
      set: (value) => {
        const written = codec.encode(value);
        store.set(key, written === plain ? null : written);
      },
    });
  }
  return state;
}
