import type { Component } from 'svelte';
import { chapters } from './learn/chapters';

/** Every page is a chunk of its own, fetched when somebody goes there. */
const files = import.meta.glob<{ default: Component<any> }>(['./*.svelte', './*/*.svelte']);

export type Load = () => Promise<{ default: Component<any> }>;

function page(name: string): Load {
  return files[`./${name}.svelte`] ?? files['./Missing.svelte'];
}

export interface Page {
  /** The place in the navigation that it belongs to. */
  section: 'learn' | 'explore' | 'compare' | 'cost' | 'claims' | 'runs' | null;
  pattern: string;
  load: Load;
}

export const pages: Page[] = [
  { section: null, pattern: '/', load: page('Start') },
  { section: 'learn', pattern: '/learn', load: page('learn/Contents') },
  ...chapters.map(({ slug, component }) => ({
    section: 'learn' as const,
    pattern: `/learn/${slug}`,
    load: page(`learn/${component}`),
  })),
  { section: 'explore', pattern: '/explore/:model?/:view?', load: page('explore/Explore') },
  { section: 'compare', pattern: '/compare', load: page('compare/Compare') },
  { section: 'cost', pattern: '/cost', load: page('cost/Cost') },
  { section: 'claims', pattern: '/claims', load: page('claims/Claims') },
  { section: 'claims', pattern: '/claims/:name', load: page('claims/Claim') },
  { section: 'runs', pattern: '/runs', load: page('runs/Runs') },
  { section: 'runs', pattern: '/runs/:name', load: page('runs/Run') },
  { section: null, pattern: '/figure/:name', load: page('OneFigure') },
];

export const missing: Load = page('Missing');
