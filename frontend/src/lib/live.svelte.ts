import type { Reply } from './frames';
import { Latest } from './latest';
import type { Tensor } from './tensor';
import { freshId, transport } from './transport';

export interface Question {
  op: string;
  args?: Record<string, unknown>;
}

/** What an operation last answered, and how it stands. */
export class Live {
  data = $state.raw<any>(null);
  arrays = $state.raw<Record<string, Tensor>>({});
  python = $state('');
  printed = $state.raw<number[]>([]);
  error = $state<string | null>(null);
  busy = $state(false);
  ms = $state(0);
  op = $state('');
  args = $state.raw<Record<string, unknown>>({});

  hear(reply: Reply): void {
    this.error = reply.error;
    // The last frame of a long operation says only that nothing more comes: what it answered before stays.
    if (reply.error === null && (reply.data !== null || Object.keys(reply.arrays).length > 0)) {
      this.ms = reply.ms;
      this.data = reply.data;
      this.arrays = reply.arrays;
      this.python = reply.python;
      this.printed = reply.printed;
    }
    if (reply.last) this.busy = false;
  }
}

/** Asks an operation, and again whenever the question changes. A question of null asks nothing and keeps the answer. */
export function live(question: () => Question | null): Live {
  const way = transport();
  const id = freshId('live');
  const answer = new Live();
  let seq = 0;
  let asked = '';
  let last: Question | null = null;

  const latest = new Latest<Question>(({ op, args }) => {
    last = { op, args };
    answer.op = op;
    answer.args = args ?? {};
    way.send({ id, seq: ++seq, op, args: args ?? {} });
  });

  $effect(() => {
    const stop = way.listen(
      id,
      (reply) => {
        if (reply.seq !== seq) return;
        answer.hear(reply);
        if (reply.last) latest.done();
        else latest.partial();
        if (!latest.idle) answer.busy = true;
      },
      () => {
        if (latest.idle || !last) return;
        latest.forget();
        latest.offer(last);
      },
    );
    return () => {
      stop();
      if (!latest.idle) way.cancel(id);
    };
  });

  $effect(() => {
    const now = question();
    if (!now) return;
    const key = JSON.stringify([now.op, now.args ?? {}]);
    if (key === asked) return;
    asked = key;
    answer.busy = true;
    latest.offer({ op: now.op, args: now.args });
  });

  return answer;
}

export type Part = Pick<Reply, 'data' | 'arrays' | 'python' | 'printed' | 'ms'>;

/** An operation that takes long: started by a press, answering as it goes, and stopped by another. */
export class Job {
  answers = $state.raw<Part[]>([]);
  running = $state(false);
  error = $state<string | null>(null);
  args = $state.raw<Record<string, unknown>>({});
  readonly id = freshId('job');
  private seq = 0;

  constructor(
    readonly op: string,
    private readonly way = transport(),
  ) {
    $effect(() => {
      const stop = this.way.listen(
        this.id,
        (reply) => this.hear(reply),
        () => {
          if (!this.running) return;
          this.running = false;
          this.error = 'The connection was lost while this ran. Start it again.';
        },
      );
      return () => {
        stop();
        if (this.running) this.way.cancel(this.id);
      };
    });
  }

  get last(): Part | null {
    return this.answers.at(-1) ?? null;
  }

  start(args: Record<string, unknown> = {}): void {
    this.answers = [];
    this.error = null;
    this.running = true;
    this.args = args;
    this.way.send({ id: this.id, seq: ++this.seq, op: this.op, args });
  }

  cancel(): void {
    if (!this.running) return;
    this.running = false;
    this.seq += 1;
    this.way.cancel(this.id);
  }

  // So that a Figure can show a job as it shows an answer.
  get data(): any {
    return this.last?.data ?? null;
  }
  get arrays(): Record<string, Tensor> {
    return this.last?.arrays ?? {};
  }
  get python(): string {
    return this.last?.python ?? '';
  }
  get printed(): number[] {
    return this.last?.printed ?? [];
  }
  get ms(): number {
    return this.last?.ms ?? 0;
  }
  get busy(): boolean {
    return this.running;
  }

  private hear(reply: Reply): void {
    if (reply.seq !== this.seq) return;
    if (reply.error !== null) this.error = reply.error;
    // A last frame may say only that nothing more comes.
    else if (reply.data !== null || Object.keys(reply.arrays).length > 0) this.answers = [...this.answers, reply];
    if (reply.last) this.running = false;
  }
}

export function job(op: string): Job {
  return new Job(op);
}

/** What a Figure needs of an answer: a `live` one and a `job` both serve. */
export type Shown = Pick<Live, 'data' | 'arrays' | 'python' | 'printed' | 'error' | 'busy' | 'ms' | 'op' | 'args'>;
