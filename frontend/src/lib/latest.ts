/**
 * One question in flight, the newest waiting, all between forgotten: a dragged slider asks as fast as it is answered.
 * A question whose answers have begun to stream is not waited for: a newer one replaces it at once.
 */
export class Latest<T> {
  private waiting: T | undefined;
  private busy = false;
  private streaming = false;

  constructor(private readonly send: (question: T) => void) {}

  offer(question: T): void {
    if (this.busy && !this.streaming) this.waiting = question;
    else this.put(question);
  }

  /** An answer came that is not the last one. */
  partial(): void {
    this.streaming = true;
    if (this.waiting !== undefined) this.next();
  }

  /** The last answer came, or an error. */
  done(): void {
    this.busy = false;
    this.streaming = false;
    if (this.waiting !== undefined) this.next();
  }

  forget(): void {
    this.waiting = undefined;
    this.busy = false;
    this.streaming = false;
  }

  get idle(): boolean {
    return !this.busy;
  }

  private next(): void {
    const question = this.waiting as T;
    this.waiting = undefined;
    this.put(question);
  }

  private put(question: T): void {
    this.busy = true;
    this.streaming = false;
    this.send(question);
  }
}
