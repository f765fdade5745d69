import type { Shown } from '../../lib/live.svelte';

/** An answer that counts as busy as long as something else of its figure is still on its way. */
export function together(answer: Shown, waits: () => boolean): Shown {
  return {
    get data() {
      return answer.data;
    },
    get arrays() {
      return answer.arrays;
    },
    get python() {
      return answer.python;
    },
    get printed() {
      return answer.printed;
    },
    get error() {
      return answer.error;
    },
    get busy() {
      return answer.busy || waits();
    },
    get ms() {
      return answer.ms;
    },
    get op() {
      return answer.op;
    },
    get args() {
      return answer.args;
    },
  };
}
