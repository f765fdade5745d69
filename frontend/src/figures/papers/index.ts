export const figures = {
  'papers.list': () => import('./List.svelte'),
};
