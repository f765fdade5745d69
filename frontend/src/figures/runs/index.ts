export const figures = {
  'runs.curves': () => import('./Curves.svelte'),
  'runs.sample': () => import('./Sample.svelte'),
  'runs.heads': () => import('./Heads.svelte'),
  'runs.pattern': () => import('./Pattern.svelte'),
};
