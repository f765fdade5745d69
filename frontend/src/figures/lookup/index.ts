export const figures = {
  'lookup.plane': () => import('./Plane.svelte'),
  'lookup.learn': () => import('./Learn.svelte'),
  'lookup.retrieve': () => import('./Retrieve.svelte'),
};
