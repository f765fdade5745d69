import type { Asking } from '../../pages/explore/asking';
import type { Listed } from '../../pages/explore/runs';
import type { RunRecord } from '../../pages/explore/types';
import type { Reply } from '../../lib/frames';
import { freshId, type Transport } from '../../lib/transport';

/** What the explorer asks of a server, asked of the kernel. A reader's files are Python's to open, not the page's. */
export function askingOf(way: Transport): Asking {
  return {
    makeRun: async (asked, signal) => (await once(way, 'notebook.run', asked, signal)).data as RunRecord,
    tensor: async (run, name, part = {}, signal) => (await once(way, 'notebook.part', { run, name, ...part }, signal)).arrays.part,
    models: async (signal) => (await once(way, 'notebook.models', {}, signal)).data.models as Listed[],
    give: null,
  };
}

/** One question and its answer. Ending the signal ends the work on it. */
function once(way: Transport, op: string, args: object, signal?: AbortSignal): Promise<Reply> {
  return new Promise((done, fail) => {
    const id = freshId('once');
    const end = () => {
      stop();
      signal?.removeEventListener('abort', abort);
    };
    const abort = () => {
      end();
      way.cancel(id);
      fail(new DOMException('nobody waits for it any more', 'AbortError'));
    };
    const stop = way.listen(
      id,
      (reply) => {
        end();
        if (reply.error === null) done(reply);
        else fail(new Error(reply.error));
      },
      () => {
        end();
        fail(new Error('the connection was lost'));
      },
    );
    if (signal?.aborted) return abort();
    signal?.addEventListener('abort', abort);
    const given = Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null && value !== undefined && value !== ''));
    way.send({ id, seq: 1, op, args: given });
  });
}
