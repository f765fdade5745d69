import { download } from './clipboard';
import type { Shown } from './live.svelte';
import { route } from './router.svelte';
import { styleSheet, type Style } from './snapshot.css';
import { snapshot } from './snapshot';
import { vectors } from './vectors';

export type Kind = 'html' | 'svg' | 'png' | 'json';

export interface Described {
  id: string;
  title: string;
  call: string;
  answer: Shown;
}

const TYPES: Record<Kind, string> = { html: 'text/html', svg: 'image/svg+xml', png: 'image/png', json: 'application/json' };

/** Saves a figure as a file; answers what was saved. */
export async function saveFigure(figure: HTMLElement, kind: Kind, what: Described): Promise<string> {
  const name = `clearhead-${what.id}.${kind}`;
  const content = await made(figure, kind, what);
  download(name, typeof content === 'string' ? new Blob([content], { type: `${TYPES[kind]};charset=utf-8` }) : content);
  return `Saved as ${name}`;
}

async function made(figure: HTMLElement, kind: Kind, what: Described): Promise<string | Blob> {
  if (kind === 'json') return asJson(what);
  if (kind === 'svg') return vectors(figure);
  const style = await styleSheet(figure);
  return kind === 'html' ? asHtml(figure, style, what) : asPng(figure, style);
}

/** What was asked and answered, with every number of the arrays. */
export function asJson({ id, title, call, answer }: Described): string {
  const arrays = Object.fromEntries(
    Object.entries(answer.arrays).map(([name, { shape, data }]) => [name, { shape, values: Array.from(data, finite) }]),
  );
  const { op, args, data, printed, python } = answer;
  return JSON.stringify({ figure: id, title, computed_by: call, operation: op, arguments: args, data, arrays, printed, python }, null, 1);
}

/** JSON has no infinity. */
function finite(value: number): number | string {
  return Number.isFinite(value) ? value : String(value);
}

/** One file that shows the figure as it is now, without a network and without a script. */
async function asHtml(figure: HTMLElement, style: Style, { title, call, answer }: Described): Promise<string> {
  const page = document.implementation.createHTMLDocument(title);
  const root = page.documentElement;
  root.lang = 'en-GB';
  root.dataset.theme = theme(figure);
  const head = (tag: string, attributes: Record<string, string>, text = '') => {
    const element = page.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    page.head.append(element);
  };
  page.head.prepend(Object.assign(page.createElement('meta'), { charset: 'utf-8' }));
  page.querySelector('meta')!.setAttribute('charset', 'utf-8');
  head('meta', { name: 'viewport', content: 'width=device-width, initial-scale=1' });
  head('meta', { name: 'generator', content: 'clearhead studio' });
  head('meta', { 'http-equiv': 'Content-Security-Policy', content: "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:" });
  head('style', {}, `${style.fonts}\n${style.rules}`.replaceAll('</', '<\\/'));
  const main = page.createElement('main');
  main.className = 'clearhead snapshot';
  main.dataset.theme = theme(figure);
  main.append(page.importNode(snapshot(figure), true));
  const by = page.createElement('p');
  by.className = 'snapshot-by';
  by.append('computed by ', Object.assign(page.createElement('code'), { textContent: call }));
  main.append(by);
  if (answer.python) {
    const code = page.createElement('details');
    code.append(Object.assign(page.createElement('summary'), { textContent: 'The same in Python' }));
    const pre = page.createElement('pre');
    pre.textContent = answer.python;
    code.append(pre);
    main.append(code);
  }
  if (location.protocol.startsWith('http') && route.path.startsWith('/learn')) {
    const where = page.createElement('p');
    where.className = 'snapshot-by';
    where.append('In the Studio: ', Object.assign(page.createElement('code'), { textContent: route.href() }));
    main.append(where);
  }
  page.body.append(main);
  return `<!doctype html>\n${root.outerHTML}`;
}

async function asPng(figure: HTMLElement, style: Style, scale = 2): Promise<Blob> {
  const margin = 16;
  const copy = snapshot(figure);
  const host = document.createElement('div');
  host.className = 'clearhead snapshot';
  host.dataset.theme = theme(figure);
  host.setAttribute('xmlns', 'http://www.w3.org/1999/xhtml');
  const sheet = document.createElement('style');
  sheet.textContent = style.rules;
  host.append(sheet, copy);
  // Measured on the page, out of sight, because what is left out makes it lower than the figure.
  host.style.cssText = `position:absolute;left:-99999px;top:0;width:${figure.clientWidth + 2 * margin}px;padding:${margin}px`;
  const root = figure.getRootNode();
  (root instanceof ShadowRoot ? root : document.body).append(host);
  const [width, height] = [host.offsetWidth, host.offsetHeight];
  host.style.cssText = `width:${width}px;padding:${margin}px;box-sizing:border-box`;
  host.remove();
  sheet.textContent = `${style.fonts}\n${style.rules}`;
  const markup = new XMLSerializer().serializeToString(host);

  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`,
  )}`;
  await image.decode();
  // The fonts inside an image are read after it is decoded.
  await new Promise((done) => setTimeout(done, 150));
  const canvas = Object.assign(document.createElement('canvas'), { width: width * scale, height: height * scale });
  const context = canvas.getContext('2d')!;
  context.fillStyle = getComputedStyle(figure).getPropertyValue('--paper').trim() || '#fff';
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) => canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error('the picture could not be encoded'))), 'image/png'));
}

function theme(figure: HTMLElement): string {
  return figure.closest<HTMLElement>('[data-theme]')?.dataset.theme ?? 'light';
}
