import type { Attachment } from 'svelte/attachments';
import type { How } from './how';

/** The one explanation that is shown: of which element, and what it says. */
class Hint {
  target = $state.raw<Element | null>(null);
  how = $state.raw<How | null>(null);
  value = $state.raw<number | null>(null);
  private timer: ReturnType<typeof setTimeout> | undefined;

  show(target: Element, how: How, value: number | null = null): void {
    clearTimeout(this.timer);
    this.target = target;
    this.how = how;
    this.value = value;
  }

  /** Leaves time to move the pointer into the explanation. */
  leave(target?: Element): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.hide(target), 140);
  }

  stay(): void {
    clearTimeout(this.timer);
  }

  hide(target?: Element): void {
    clearTimeout(this.timer);
    if (target && this.target !== target) return;
    this.target = null;
    this.how = null;
  }
}

export const hint = new Hint();

/** Explains an element while the pointer or the focus is on it: `{@attach explains(() => how, () => value)}`. */
export function explains(how: () => How | null | undefined, value: () => number | null = () => null): Attachment<Element> {
  return (element) => {
    const show = () => {
      const said = how();
      if (said) hint.show(element, said, value());
    };
    const leave = () => {
      if (!element.matches(':focus')) hint.leave(element);
    };
    const blur = () => hint.hide(element);
    element.addEventListener('pointerenter', show);
    element.addEventListener('pointerleave', leave);
    element.addEventListener('focus', show);
    element.addEventListener('blur', blur);
    element.addEventListener('click', show);
    return () => {
      element.removeEventListener('pointerenter', show);
      element.removeEventListener('pointerleave', leave);
      element.removeEventListener('focus', show);
      element.removeEventListener('blur', blur);
      element.removeEventListener('click', show);
      hint.hide(element);
    };
  };
}
