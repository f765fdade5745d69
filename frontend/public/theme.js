// Runs before the first paint, so that no page flashes in the other theme. lib/theme.svelte.ts goes on from here.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem('clearhead-theme');
  } catch {
    // Storage may be switched off: the system's theme serves.
  }
  if (theme !== 'light' && theme !== 'dark') theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  document.documentElement.dataset.theme = theme;
})();
