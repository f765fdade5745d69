import { decode, type Reply } from './frames';
import type { Request, Transport } from './transport';

interface Listener {
  hear: (reply: Reply) => void;
  lost: () => void;
}

const FIRST_PAUSE = 250;
const LONGEST_PAUSE = 5_000;

/** One socket for the page. The token travels in a cookie. What is asked while it is closed waits until it is open. */
class Socket implements Transport {
  /** A sentence where the Studio cannot be reached, for the notice on top of the page. */
  trouble = $state<string | null>(null);

  private socket: WebSocket | null = null;
  private listeners = new Map<string, Listener>();
  private waiting = new Map<string, string>();
  private pause = FIRST_PAUSE;
  private failures = 0;

  send(request: Request): void {
    this.put(request.id, JSON.stringify(request));
  }

  cancel(id: string): void {
    this.waiting.delete(id);
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ id, op: 'cancel' }));
  }

  listen(id: string, hear: (reply: Reply) => void, lost: () => void): () => void {
    this.listeners.set(id, { hear, lost });
    return () => {
      this.listeners.delete(id);
      this.waiting.delete(id);
    };
  }

  private put(id: string, message: string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(message);
    else {
      this.waiting.set(id, message);
      if (!this.socket) this.open();
    }
  }

  private open(): void {
    const socket = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/api/v1/live`);
    socket.binaryType = 'arraybuffer';
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this.pause = FIRST_PAUSE;
      this.failures = 0;
      this.trouble = null;
      for (const message of this.waiting.values()) socket.send(message);
      this.waiting.clear();
    };
    socket.onmessage = ({ data }) => {
      const reply = decode(data as ArrayBuffer);
      this.listeners.get(reply.id)?.hear(reply);
    };
    socket.onclose = () => {
      this.socket = null;
      this.failures += 1;
      if (opened) for (const { lost } of [...this.listeners.values()]) lost();
      if (this.failures >= 2) void this.ask();
      setTimeout(() => this.socket ?? this.open(), this.pause);
      this.pause = Math.min(LONGEST_PAUSE, this.pause * 2);
    };
    this.socket = socket;
  }

  /** Whether the server is gone, or is there and refuses this page. */
  private async ask(): Promise<void> {
    try {
      const answer = await fetch('/api/v1/models');
      this.trouble =
        answer.status === 401 || answer.status === 403
          ? 'This page was opened without its token: use the link that clearhead studio printed.'
          : 'The Studio does not answer for the moment. This page tries again by itself.';
    } catch {
      this.trouble = 'The Studio was stopped: start it again with clearhead studio.';
    }
  }
}

export const socket = new Socket();
