/** Becomes true a moment after a figure is there: what takes long lets the quick figures of the page go first. */
export class Later {
  come = $state(false);

  constructor(ms: number) {
    $effect(() => {
      const timer = setTimeout(() => (this.come = true), ms);
      return () => clearTimeout(timer);
    });
  }
}
