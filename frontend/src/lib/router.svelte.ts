import { SvelteMap } from 'svelte/reactivity';
import { parameters, searchOf } from './codec';

/** Browsers refuse more than some 100 changes of the address in 30 seconds. */
const THROTTLE = 320;

/** The address of the page: its path, and the parameters by which figures keep their state. */
class Route {
  path = $state('/');
  hash = $state('');
  readonly query = new SvelteMap<string, string>();
  /** How far down the reader was when this entry of the history was left; null where it is a new one. */
  resume: number | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    if (typeof window === 'undefined') return;
    this.read();
    addEventListener('popstate', ({ state }) => {
      this.drop();
      this.resume = state?.y ?? 0;
      this.read();
    });
    addEventListener('pagehide', () => this.flush());
  }

  /** Comes back to where the reader was, after a step back or a reload. Once the page is there, and not in a notebook. */
  keepScroll(): () => void {
    // Pages are built by scripts: the browser, which knows only the page as it arrives, would come back too early.
    history.scrollRestoration = 'manual';
    this.resume = history.state?.y ?? null;
    const keep = () => history.replaceState({ ...history.state, y: Math.round(scrollY) }, '');
    addEventListener('scrollend', keep);
    return () => removeEventListener('scrollend', keep);
  }

  /** What a pattern such as /explore/:model/:view finds in the path, or null. A part that ends with ? may be missing. */
  match(pattern: string): Record<string, string> | null {
    const wanted = pattern.split('/').slice(1);
    const given = this.path.replace(/\/+$/, '').split('/').slice(1);
    if (given.length > wanted.length) return null;
    const found: Record<string, string> = {};
    for (const [i, part] of wanted.entries()) {
      const value = given[i];
      if (value === undefined || value === '') {
        if (!part.endsWith('?') && part !== '') return null;
      } else if (part.startsWith(':')) {
        try {
          found[part.replace(/^:|\?$/g, '')] = decodeURIComponent(value);
        } catch {
          return null;
        }
      } else if (part !== value) return null;
    }
    return found;
  }

  /** The parts of the path that the page's pattern names; set by the App. */
  params = $state.raw<Record<string, string>>({});

  /** The address as it is to be in a link. */
  href(): string {
    return this.path + searchOf(this.query) + this.hash;
  }

  set(key: string, value: string | null): void {
    if (value === null) {
      if (!this.query.has(key)) return;
      this.query.delete(key);
    } else {
      if (this.query.get(key) === value) return;
      this.query.set(key, value);
    }
    this.timer ??= setTimeout(() => this.flush(), THROTTLE);
  }

  /** Writes the state into the address now. */
  flush(): void {
    if (this.timer === undefined) return;
    this.drop();
    history.replaceState(history.state, '', this.href());
  }

  go(href: string, replace = false): void {
    this.flush();
    this.resume = null;
    if (replace) history.replaceState(null, '', href);
    else history.pushState(null, '', href);
    this.read();
  }

  private drop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private read(): void {
    this.path = location.pathname;
    this.hash = location.hash;
    const now = new Map(parameters(location.search));
    for (const key of [...this.query.keys()]) if (!now.has(key)) this.query.delete(key);
    for (const [key, value] of now) if (this.query.get(key) !== value) this.query.set(key, value);
  }
}

export const route = new Route();

/** Goes to another page of the Studio without a reload. */
export function go(href: string, { replace = false } = {}): void {
  route.go(href, replace);
}

/** Follows links within the Studio without a reload. */
export function follow(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest?.('a');
  const href = link?.getAttribute('href');
  if (!link || !href || link.target || link.hasAttribute('download')) return;
  if (href.startsWith('#')) {
    event.preventDefault();
    route.flush();
    show(href);
    history.replaceState(history.state, '', location.pathname + location.search + href);
    route.hash = href;
    return;
  }
  if (!href.startsWith('/') || href.startsWith('//') || href.startsWith('/api/')) return;
  event.preventDefault();
  go(href);
}

/** Brings the element that a hash names into view, and the focus to it. */
export function show(hash: string): boolean {
  let found: HTMLElement | null = null;
  try {
    found = document.getElementById(decodeURIComponent(hash.slice(1)));
  } catch {
    return false;
  }
  if (!found) return false;
  if (!found.hasAttribute('tabindex')) found.setAttribute('tabindex', '-1');
  found.focus({ preventScroll: true });
  found.scrollIntoView({ block: 'start' });
  return true;
}
