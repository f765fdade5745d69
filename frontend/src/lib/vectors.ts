/** A figure as one SVG of real vectors: its own SVGs with their styles inside, its boxes as rectangles, its text as text. */

const NS = 'http://www.w3.org/2000/svg';
const MARGIN = 16;
const CELLS = 64 * 64;

const CARRIED = [
  'fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-opacity', 'stroke-dasharray', 'stroke-linejoin', 'stroke-linecap', 'opacity',
  'font-family', 'font-size', 'font-weight', 'font-style', 'letter-spacing', 'text-anchor', 'text-transform', 'dominant-baseline',
  'paint-order', 'visibility', 'transform', 'transform-origin', 'transform-box',
];

export function vectors(figure: HTMLElement): string {
  // What is left out leaves no gap: it is gone while the rest is measured, which no frame shows.
  const left = [...figure.querySelectorAll<HTMLElement>('[data-export=leave]')];
  const before = left.map((element) => element.style.display);
  for (const element of left) element.style.display = 'none';
  try {
    return drawn(figure);
  } finally {
    left.forEach((element, i) => (element.style.display = before[i]));
  }
}

function drawn(figure: HTMLElement): string {
  const cells = figure.querySelectorAll('[role=gridcell], svg rect').length;
  if (cells > 2 * CELLS) throw new Error('it has more than 64 × 64 cells; save it as PNG');
  const frame = bounds(figure);
  const width = Math.ceil(frame.width + 2 * MARGIN);
  const height = Math.ceil(frame.height + 2 * MARGIN);
  const svg = document.createElementNS(NS, 'svg');
  set(svg, { xmlns: NS, width, height, viewBox: `0 0 ${width} ${height}`, role: 'img' });
  const title = document.createElementNS(NS, 'title');
  title.textContent = figure.querySelector('figcaption')?.textContent?.trim() ?? '';
  const paper = document.createElementNS(NS, 'rect');
  set(paper, { width, height, fill: getComputedStyle(figure).getPropertyValue('--paper').trim() || '#fff' });
  svg.append(title, paper);
  const origin = { x: frame.left - MARGIN, y: frame.top - MARGIN };
  for (const child of figure.children) walk(child, svg, origin);
  return new XMLSerializer().serializeToString(svg);
}

/** What encloses the parts that are drawn. */
function bounds(figure: HTMLElement): { left: number; top: number; width: number; height: number } {
  const box = figure.getBoundingClientRect();
  let [top, bottom] = [Infinity, -Infinity];
  for (const child of figure.children) {
    if (leftOut(child)) continue;
    const own = child.getBoundingClientRect();
    top = Math.min(top, own.top);
    bottom = Math.max(bottom, own.bottom);
  }
  return { left: box.left, top, width: box.width, height: Math.max(0, bottom - top) };
}

function leftOut(element: Element): boolean {
  if (element.matches('[data-export=leave], .sr-only, script, style, .katex-mathml')) return true;
  const style = getComputedStyle(element);
  return style.display === 'none' || style.visibility === 'hidden' || style.opacity === '0';
}

function walk(element: Element, into: Element, origin: { x: number; y: number }): void {
  if (leftOut(element)) return;
  const box = element.getBoundingClientRect();
  if (element instanceof SVGSVGElement) {
    into.append(drawing(element, box, origin));
    return;
  }
  if (element instanceof HTMLCanvasElement) {
    const image = document.createElementNS(NS, 'image');
    set(image, { x: box.left - origin.x, y: box.top - origin.y, width: box.width, height: box.height, href: element.toDataURL(), preserveAspectRatio: 'none' });
    into.append(image);
    return;
  }
  boxOf(element, box, into, origin);
  for (const node of element.childNodes) {
    if (node instanceof Element) walk(node, into, origin);
    else if (node instanceof Text && node.data.trim()) words(node, element, into, origin);
  }
}

/** An SVG of the figure, with what the style sheet says of it written into each element. */
function drawing(source: SVGSVGElement, box: DOMRect, origin: { x: number; y: number }): SVGSVGElement {
  const copy = source.cloneNode(true) as SVGSVGElement;
  const originals = source.querySelectorAll('*');
  copy.querySelectorAll('*').forEach((element, i) => {
    const style = getComputedStyle(originals[i]);
    const said = CARRIED.map((name) => [name, style.getPropertyValue(name)] as const).filter(([, value]) => value && !['none 0px', 'normal'].includes(value));
    element.setAttribute('style', said.map(([name, value]) => `${name}:${value}`).join(';'));
    for (const name of ['class', 'tabindex', 'data-lm-suppress-shortcuts', 'aria-describedby', 'style-fill']) element.removeAttribute(name);
  });
  set(copy, { x: box.left - origin.x, y: box.top - origin.y, width: box.width, height: box.height, overflow: 'visible' });
  for (const name of ['class', 'role', 'style', 'tabindex', 'aria-rowcount', 'aria-colcount']) copy.removeAttribute(name);
  return copy;
}

function boxOf(element: Element, box: DOMRect, into: Element, origin: { x: number; y: number }): void {
  const style = getComputedStyle(element);
  const filled = !/^(transparent|rgba\(.*, 0\)|color\(.* \/ 0\))$/.test(style.backgroundColor);
  const sides = (['Top', 'Right', 'Bottom', 'Left'] as const).map((side) => ({
    side, width: style[`border${side}Style`] === 'none' ? 0 : Number.parseFloat(style[`border${side}Width`]), colour: style[`border${side}Color`],
  }));
  const even = sides.every(({ width, colour }) => width === sides[0].width && colour === sides[0].colour);
  if (box.width === 0 || box.height === 0) return;
  if (filled || (even && sides[0].width > 0)) {
    const rect = document.createElementNS(NS, 'rect');
    const inset = even ? sides[0].width / 2 : 0;
    set(rect, {
      x: box.left - origin.x + inset, y: box.top - origin.y + inset, width: Math.max(0, box.width - 2 * inset), height: Math.max(0, box.height - 2 * inset),
      rx: Number.parseFloat(style.borderTopLeftRadius) || 0, fill: filled ? style.backgroundColor : 'none',
    });
    if (even && sides[0].width > 0) set(rect, { stroke: sides[0].colour, 'stroke-width': sides[0].width });
    into.append(rect);
  }
  if (even) return;
  const [l, t, r, b] = [box.left - origin.x, box.top - origin.y, box.right - origin.x, box.bottom - origin.y];
  const lines = { Top: [l, t, r, t], Right: [r, t, r, b], Bottom: [l, b, r, b], Left: [l, t, l, b] };
  for (const { side, width, colour } of sides) {
    if (width === 0) continue;
    const [x1, y1, x2, y2] = lines[side];
    const line = document.createElementNS(NS, 'line');
    set(line, { x1, y1, x2, y2, stroke: colour, 'stroke-width': width });
    into.append(line);
  }
}

/** Each word where it stands on the page, so that lines break as they do there. */
function words(node: Text, parent: Element, into: Element, origin: { x: number; y: number }): void {
  const style = getComputedStyle(parent);
  const size = Number.parseFloat(style.fontSize);
  const range = document.createRange();
  for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = range.getBoundingClientRect();
    if (box.width === 0) continue;
    const text = document.createElementNS(NS, 'text');
    set(text, {
      x: box.left - origin.x, y: box.top - origin.y + box.height / 2 + size * 0.345, fill: style.color,
      'font-family': style.fontFamily, 'font-size': size, 'font-weight': style.fontWeight, textLength: box.width, lengthAdjust: 'spacingAndGlyphs',
    });
    if (style.fontStyle !== 'normal') set(text, { 'font-style': style.fontStyle });
    text.textContent = style.textTransform === 'uppercase' ? word.toUpperCase() : word;
    into.append(text);
  }
}

function set(element: Element, attributes: Record<string, string | number>): void {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, typeof value === 'number' ? String(Math.round(value * 100) / 100) : value);
  }
}
