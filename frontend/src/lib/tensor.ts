/** Numbers of a computation, as they came over the wire: row after row, with a shape. */
export type Numbers = Float32Array | Int32Array | Uint8Array;

export class Tensor {
  readonly shape: number[];
  readonly data: Numbers;

  constructor(data: Numbers, shape: number[]) {
    const size = shape.reduce((a, b) => a * b, 1);
    if (size !== data.length) throw new RangeError(`a tensor of shape ${shape} holds ${size} numbers, not ${data.length}`);
    this.data = data;
    this.shape = shape;
  }

  static from(values: number[] | number[][]): Tensor {
    const rows = values as number[][];
    if (values.length > 0 && Array.isArray(values[0])) {
      return new Tensor(Float32Array.from(rows.flat()), [rows.length, rows[0].length]);
    }
    return new Tensor(Float32Array.from(values as number[]), [values.length]);
  }

  /** One number. As many places as there are axes. */
  at(...places: number[]): number {
    return this.data[this.offset(places)];
  }

  /** The tensor at the first places: a row of a matrix, a matrix of a cube. Shares its numbers with this one. */
  row(...places: number[]): Tensor {
    const shape = this.shape.slice(places.length);
    const size = shape.reduce((a, b) => a * b, 1);
    const start = this.offset(places) * size;
    return new Tensor(this.data.subarray(start, start + size), shape);
  }

  list(): number[] {
    return Array.from(this.data);
  }

  /** A matrix as lists of rows. */
  lists(): number[][] {
    return Array.from({ length: this.shape[0] }, (_, i) => this.row(i).list());
  }

  private offset(places: number[]): number {
    let offset = 0;
    for (let axis = 0; axis < places.length; axis++) {
      const place = places[axis];
      if (!(place >= 0 && place < this.shape[axis])) {
        throw new RangeError(`place ${place} of axis ${axis}, which has ${this.shape[axis]}`);
      }
      offset = offset * this.shape[axis] + place;
    }
    return offset;
  }
}
