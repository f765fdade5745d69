import type { Component } from 'svelte';

/** The views of `clearhead.lens`, which a widget shows of a result that Python holds. */
export const views: Record<string, () => Promise<{ default: Component<any> }>> = {
  'view.table': () => import('./Table.svelte'),
  'view.map': () => import('./Map.svelte'),
  'view.grid': () => import('./Grid.svelte'),
  'view.links': () => import('./Links.svelte'),
  'view.shapes': () => import('./Shapes.svelte'),
};
