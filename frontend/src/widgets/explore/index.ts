import type { Component } from 'svelte';
import { views } from '../../pages/explore/views';

export interface Explorer {
  load: () => Promise<{ default: Component<any> }>;
  props: Record<string, unknown>;
  /** Whether it shows several views, whose state must be kept apart. */
  several: boolean;
}

/** What Python calls "explore" (all views of a model, under tabs), "explore.lens" (one of them) and "compare". */
export function explorerOf(name: string): Explorer | null {
  if (name === 'compare') return { load: () => import('../../pages/compare/Compare.svelte'), props: {}, several: false };
  const [first, slug] = name.split('.');
  if (first !== 'explore' || (slug !== undefined && !views.some((view) => view.slug === slug))) return null;
  return { load: () => import('./Explorer.svelte'), props: { slug: slug ?? null }, several: slug === undefined };
}
