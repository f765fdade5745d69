import { getContext, setContext } from 'svelte';
import type { Reply } from './frames';
import { socket } from './socket.svelte';

export interface Request {
  id: string;
  seq: number;
  op: string;
  args: Record<string, unknown>;
}

/** What carries questions to the library and answers back: a socket in the Studio, messages of a widget in a notebook. */
export interface Transport {
  send(request: Request): void;
  cancel(id: string): void;
  /** `hear` gets the replies of an id; `lost` is called where the way was cut while something may have been under way. */
  listen(id: string, hear: (reply: Reply) => void, lost: () => void): () => void;
}

const KEY = Symbol('transport');

export function provideTransport(transport: Transport): void {
  setContext(KEY, transport);
}

/** The transport of this part of the page. Called while a component is made. */
export function transport(): Transport {
  return getContext<Transport | undefined>(KEY) ?? socket;
}

let made = 0;
export function freshId(kind: string): string {
  return `${kind}${++made}`;
}
