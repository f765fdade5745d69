/** A copy of a figure that needs nothing of the page: no script, no control, each canvas an image. */
export function snapshot(figure: HTMLElement): HTMLElement {
  const copy = figure.cloneNode(true) as HTMLElement;
  const canvases = figure.querySelectorAll('canvas');
  copy.querySelectorAll('canvas').forEach((canvas, i) => {
    const image = document.createElement('img');
    image.src = canvases[i].toDataURL();
    image.alt = canvases[i].closest('[aria-label]')?.getAttribute('aria-label') ?? '';
    image.style.cssText = `${canvas.style.cssText};display:block;width:${canvases[i].offsetWidth}px;height:${canvases[i].offsetHeight}px`;
    canvas.replaceWith(image);
  });
  // A copy forgets what was set: its attributes say how things stood at first.
  const inputs = figure.querySelectorAll('input, textarea, select');
  copy.querySelectorAll('input, textarea, select').forEach((input, i) => {
    const original = inputs[i];
    if (original instanceof HTMLSelectElement) {
      [...(input as HTMLSelectElement).options].forEach((option, k) => option.toggleAttribute('selected', k === original.selectedIndex));
    } else if (original instanceof HTMLTextAreaElement) input.textContent = original.value;
    else if (original instanceof HTMLInputElement) {
      input.setAttribute('value', original.value);
      input.toggleAttribute('checked', original.checked);
    }
  });
  for (const left of copy.querySelectorAll('[data-export=leave], script, [aria-live], iframe')) {
    if (left.matches('[data-export=leave], script, iframe')) left.remove();
    else left.removeAttribute('aria-live');
  }
  for (const element of [copy, ...copy.querySelectorAll('*')]) {
    for (const name of ['tabindex', 'aria-describedby', 'aria-busy', 'data-lm-suppress-shortcuts']) element.removeAttribute(name);
    // What was a control says a value now.
    if (element instanceof HTMLButtonElement) element.replaceWith(plain(element));
    else if (element instanceof HTMLInputElement || element instanceof HTMLSelectElement || element instanceof HTMLTextAreaElement) {
      element.setAttribute('disabled', '');
    } else if (element.getAttribute('role') === 'application') {
      element.removeAttribute('role');
      element.removeAttribute('aria-roledescription');
      element.removeAttribute('aria-label');
    }
  }
  copy.classList.add('snapshot-figure');
  return copy;
}

function plain(button: HTMLButtonElement): HTMLElement {
  const span = document.createElement('span');
  for (const { name, value } of button.attributes) if (name !== 'type' && !name.startsWith('aria-')) span.setAttribute(name, value);
  span.append(...button.childNodes);
  return span;
}
