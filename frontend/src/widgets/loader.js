// Asks the kernel for the figures' code once for each page, however many widgets there are, and draws with it.
const LONGEST_WAIT = 30_000;

function load(model) {
  const held = (globalThis.__clearhead ??= new Map());
  const version = model.get('_bundle');
  if (!held.has(version)) {
    const coming = ask(model).then(async ([code, style]) => {
      const address = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
      try {
        return { bundle: await import(address), style: new TextDecoder().decode(style) };
      } finally {
        URL.revokeObjectURL(address);
      }
    });
    held.set(version, coming);
    coming.catch(() => held.delete(version));
  }
  return held.get(version);
}

function ask(model) {
  return new Promise((done, fail) => {
    const timer = setTimeout(() => finish(() => fail(new Error('the kernel did not answer'))), LONGEST_WAIT);
    const hear = (message, buffers) => {
      if (message?.kind === 'bundle') finish(() => done(buffers));
    };
    const finish = (end) => {
      clearTimeout(timer);
      model.off('msg:custom', hear);
      end();
    };
    model.on('msg:custom', hear);
    model.send({ kind: 'bundle' });
  });
}

async function render({ model, el }) {
  try {
    const { bundle, style } = await load(model);
    return bundle.draw({ model, el, style });
  } catch (problem) {
    el.textContent = `clearhead: this figure needs its kernel (${problem.message}). Run the cell again.`;
  }
}

export default { render };
