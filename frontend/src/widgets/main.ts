import { mount, unmount } from 'svelte';
import '../styles/tokens.css';
import '../styles/base.css';
import './widget.css';
import Root from './Root.svelte';
import type { Model } from './transport';

/** Draws a widget into an output cell. It lives in a shadow root: neither it nor the notebook styles the other. */
export function draw({ model, el, style }: { model: Model; el: HTMLElement; style: string }): () => void {
  const host = document.createElement('div');
  // Seen from the notebook it is the host that has the focus, so the host has to keep its keys from the notebook too.
  host.dataset.lmSuppressShortcuts = '';
  const root = host.attachShadow({ mode: 'open' });
  const sheet = document.createElement('style');
  sheet.textContent = style;
  const body = document.createElement('div');
  body.className = 'clearhead';
  body.dataset.theme = themeOf();
  root.append(sheet, body);
  el.replaceChildren(host);

  const app = mount(Root, { target: body, props: { model, body } });
  return () => {
    void unmount(app);
    host.remove();
  };
}

/** Dark where the notebook says so, else where the system does. */
export function themeOf(): 'light' | 'dark' {
  const body = document.body;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === 'false' ? 'dark' : 'light';
  const said = `${body.className} ${document.documentElement.className} ${document.documentElement.getAttribute('theme') ?? ''}`;
  if (/\b(vscode-)?dark\b/.test(said)) return 'dark';
  if (/\b(vscode-)?light\b/.test(said)) return 'light';
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}
