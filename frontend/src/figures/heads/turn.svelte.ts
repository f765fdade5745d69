/** The figures that wait for their turn, in the order in which they stand. */
const waiting: string[] = [];

/** Whether a figure is at work that does not itself wait. */
function busy(): boolean {
  return [...document.querySelectorAll('figure[aria-busy=true]')].some((one) => !waiting.includes(one.id));
}

/**
 * Comes true when a figure is seen, or when nothing else of its page is at work: what takes long lets the quick figures
 * go first.
 */
export class Turn {
  come = $state(false);

  constructor(id: string) {
    $effect(() => {
      const figure = document.getElementById(id);
      // In a notebook a figure stands alone, and may stand where the document does not find it.
      if (!figure || typeof IntersectionObserver === 'undefined') {
        this.come = true;
        return;
      }
      const go = () => {
        this.come = true;
        stop();
      };
      const eyes = new IntersectionObserver((entries) => {
        if (entries.some((one) => one.isIntersecting)) go();
      });
      const ears = setInterval(() => {
        if (waiting[0] === id && !busy()) go();
      }, 150);
      const stop = () => {
        eyes.disconnect();
        clearInterval(ears);
        const place = waiting.indexOf(id);
        if (place >= 0) waiting.splice(place, 1);
      };
      waiting.push(id);
      eyes.observe(figure);
      return stop;
    });
  }
}
