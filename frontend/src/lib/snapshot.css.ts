export interface Style {
  /** The rules of the page that a copy of a figure needs. */
  rules: string;
  /** The fonts it uses, inside. The page itself may not load fonts of this form, a saved file may. */
  fonts: string;
}

export async function styleSheet(figure: HTMLElement): Promise<Style> {
  const used = usedFonts(figure);
  const fonts: string[] = [];
  const parts: string[] = [];
  // A widget has its styles in its own shadow root.
  const root = figure.getRootNode();
  for (const sheet of root instanceof ShadowRoot ? root.styleSheets : document.styleSheets) {
    let rules: CSSRuleList;
    try {
      rules = sheet.cssRules;
    } catch {
      continue; // a sheet of another origin, in a notebook: none of ours
    }
    for (const rule of rules) {
      if (rule instanceof CSSFontFaceRule) fonts.push(await withFont(rule, used, sheet.href));
      else if (wanted(rule, figure)) parts.push(rule.cssText);
    }
  }
  parts.push(`
    .snapshot { background: var(--paper); color: var(--ink); font: 400 14px/1.4 var(--sans); margin: 0 auto; }
    main.snapshot { max-width: 1008px; padding: 24px; min-height: 100vh; }
    .snapshot .snapshot-figure { margin: 0; border: 0; padding: 0; max-width: none; }
    .snapshot-by, .snapshot details { color: var(--muted); font-size: 12.5px; margin: 16px 0 0; }
    .snapshot button, .snapshot .num { text-decoration: none; cursor: default; }
    .snapshot pre { overflow-x: auto; padding: 12px 16px; border: 1px solid var(--rule); border-radius: 6px; background: var(--surface); color: var(--ink); }
  `);
  return { rules: parts.join('\n'), fonts: fonts.filter(Boolean).join('\n') };
}

/** A rule of the whole page, or one that names something in the figure. Rules inside a condition go with it. */
function wanted(rule: CSSRule, figure: HTMLElement): boolean {
  if (rule instanceof CSSStyleRule) {
    return rule.selectorText.split(',').some((selector) => {
      const plain = selector.replace(/::?[\w-]+(\([^()]*\))?/g, '').trim();
      if (!plain || /^(html|body|:root|\*)/.test(selector.trim())) return true;
      try {
        return figure.matches(plain) || figure.querySelector(plain) !== null || figure.closest(plain) !== null;
      } catch {
        return false;
      }
    });
  }
  if (rule instanceof CSSMediaRule || rule instanceof CSSContainerRule || rule instanceof CSSSupportsRule) {
    return [...rule.cssRules].some((inner) => wanted(inner, figure));
  }
  return false;
}

function usedFonts(figure: HTMLElement): Set<string> {
  const found = new Set<string>();
  for (const element of [figure, ...figure.querySelectorAll('*')]) {
    found.add(family(getComputedStyle(element).fontFamily));
  }
  return found;
}

function family(list: string): string {
  return list.split(',')[0].trim().replace(/^["']|["']$/g, '');
}

async function withFont(rule: CSSFontFaceRule, fonts: Set<string>, sheet: string | null): Promise<string> {
  if (!fonts.has(family(rule.style.getPropertyValue('font-family')))) return '';
  const address = /url\(["']?([^"')]+)["']?\)/.exec(rule.style.getPropertyValue('src'))?.[1];
  if (!address) return '';
  try {
    const answer = await fetch(new URL(address, sheet ?? document.baseURI));
    if (!answer.ok) return '';
    const url = await asDataUrl(await answer.blob());
    return rule.cssText.replace(/src:[^;]+;/, `src: url("${url}") format("woff2");`);
  } catch {
    return ''; // without it the file falls back to the fonts of the machine that opens it
  }
}

function asDataUrl(content: Blob): Promise<string> {
  return new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result).replace(/^data:[^;,]*/, 'data:font/woff2'));
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(content);
  });
}
