import { getContext, setContext } from 'svelte';
import { css, divergingTable, inkOn, table, type Ramp, type Table } from './colours';

export type Name = 'light' | 'dark';
const STORED = 'clearhead-theme';

/** The theme of a page or of a widget: an element carries its name, and the tables of colour follow. */
export class Theme {
  name = $state<Name>('light');
  private version = $state(0);
  readonly ink: Table = $derived.by(() => this.read('ink'));
  readonly diverging: Table = $derived.by(() => this.read('diverging'));

  constructor(private readonly root: HTMLElement) {
    this.name = root.dataset.theme === 'dark' ? 'dark' : 'light';
  }

  set(name: Name): void {
    this.root.dataset.theme = name;
    this.name = name;
    this.version += 1;
  }

  /** Reads the tables again: the style sheet came later than this. */
  refresh(): void {
    this.version += 1;
  }

  table(ramp: Ramp): Table {
    return ramp === 'ink' ? this.ink : this.diverging;
  }

  css(ramp: Ramp, i: number): string {
    return css(this.table(ramp), i);
  }

  inkOn(ramp: Ramp, i: number): string {
    return inkOn(this.table(ramp), i);
  }

  private read(ramp: Ramp): Table {
    void this.version;
    void this.name;
    const list = getComputedStyle(this.root).getPropertyValue(`--ramp-${ramp}`).trim();
    // Before the style sheet has come there is no list, and nothing to see either.
    return ramp === 'ink' ? table(list || '#ffffff #000000') : divergingTable(list || '#000000 #ffffff #ffffff #000000');
  }
}

/** The page's theme follows the system until somebody chooses, and remembers the choice. */
class PageTheme extends Theme {
  constructor() {
    super(document.documentElement);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', ({ matches }) => {
      if (!this.chosen()) this.set(matches ? 'dark' : 'light');
    });
  }

  toggle(): void {
    this.set(this.name === 'dark' ? 'light' : 'dark');
    try {
      localStorage.setItem(STORED, this.name);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
  }

  private chosen(): boolean {
    try {
      return localStorage.getItem(STORED) !== null;
    } catch {
      return false;
    }
  }
}

let page: PageTheme | undefined;
export function pageTheme(): PageTheme {
  page ??= new PageTheme();
  return page;
}

const KEY = Symbol('theme');
export function provideTheme(theme: Theme): void {
  setContext(KEY, theme);
}

/** The theme of this part of the page. Called while a component is made. */
export function theme(): Theme {
  return getContext<Theme | undefined>(KEY) ?? pageTheme();
}
