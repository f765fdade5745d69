export const figures = {
  'check.quiz': () => import('./Quiz.svelte'),
  'check.pronoun': () => import('./Pronoun.svelte'),
  'check.numbers': () => import('./Numbers.svelte'),
};
