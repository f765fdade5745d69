export const figures = {
  'recurrence.agreement': () => import('./Agreement.svelte'),
  'recurrence.gradient': () => import('./Gradient.svelte'),
  'recurrence.matrix': () => import('./Matrix.svelte'),
  'recurrence.path': () => import('./Path.svelte'),
  'recurrence.waiting': () => import('./Waiting.svelte'),
  'recurrence.reader': () => import('./Reader.svelte'),
};
