import { expect, test } from 'vitest';
import { sublayers, type Part } from '../src/figures/block/parts';

function part(id: string): Part {
  const kind = id.endsWith('.add') ? 'add' : id.includes('.') ? 'norm' : id === 'ffn' ? 'mlp' : 'attention';
  return { id, kind, name: id, formula: '', told: '', reads: '', gives: '', n_parameters: 0, shapes: {} };
}

const told = (ids: string[]) =>
  sublayers(ids.map(part)).map(({ branch, add, after }) => [branch.map((one) => one.id), add.id, after?.id ?? null]);

test('norms before stand on the branch', () => {
  expect(told(['mixer.pre', 'mixer', 'mixer.add', 'ffn.pre', 'ffn', 'ffn.add'])).toEqual([
    [['mixer.pre', 'mixer'], 'mixer.add', null],
    [['ffn.pre', 'ffn'], 'ffn.add', null],
  ]);
});

test('norms after stand on the stream, those on the correction on the branch', () => {
  expect(told(['mixer', 'mixer.add', 'mixer.after'])).toEqual([[['mixer'], 'mixer.add', 'mixer.after']]);
  expect(told(['mixer.pre', 'mixer', 'mixer.out', 'mixer.add'])).toEqual([[['mixer.pre', 'mixer', 'mixer.out'], 'mixer.add', null]]);
});

test('a block without an MLP has one', () => {
  expect(told(['mixer.pre', 'mixer', 'mixer.add'])).toHaveLength(1);
});
