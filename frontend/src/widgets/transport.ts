import { decode, type Reply } from '../lib/frames';
import type { Request, Transport } from '../lib/transport';

/** What of an anywidget's model is used here. */
export interface Model {
  get(name: string): any;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, hear: (...args: any[]) => void): void;
  off(event: string, hear: (...args: any[]) => void): void;
}

/** Questions and answers as messages of a widget. */
export class Messages implements Transport {
  private listeners = new Map<string, (reply: Reply) => void>();
  private readonly hear = (message: any, buffers: (DataView | ArrayBuffer)[]) => {
    if (message?.kind !== 'frame') return;
    const reply = decode(whole(buffers[0]));
    this.listeners.get(reply.id)?.(reply);
  };

  constructor(private readonly model: Model) {
    model.on('msg:custom', this.hear);
  }

  send(request: Request): void {
    this.model.send({ kind: 'ask', ...request });
  }

  cancel(id: string): void {
    this.model.send({ kind: 'cancel', id });
  }

  listen(id: string, hear: (reply: Reply) => void): () => void {
    this.listeners.set(id, hear);
    return () => this.listeners.delete(id);
  }

  close(): void {
    this.model.off('msg:custom', this.hear);
  }
}

function whole(buffer: DataView | ArrayBuffer): ArrayBuffer {
  if (buffer instanceof ArrayBuffer) return buffer;
  return buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength) as ArrayBuffer;
}
