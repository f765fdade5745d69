declare module 'd3-scale' {
  export interface Continuous {
    (value: number): number;
    invert(place: number): number;
    ticks(count?: number): number[];
    domain(): number[];
    domain(range: [number, number]): Continuous;
    range(): number[];
    range(range: [number, number]): Continuous;
    nice(count?: number): Continuous;
    clamp(on: boolean): Continuous;
    tickFormat(count?: number, specifier?: string): (value: number) => string;
  }
  export function scaleLinear(domain?: [number, number], range?: [number, number]): Continuous;
  export function scaleLog(domain?: [number, number], range?: [number, number]): Continuous;
}

declare module 'd3-shape' {
  export interface Curve<T> {
    (points: Iterable<T>): string | null;
    x(place: (point: T, index: number) => number): Curve<T>;
    y(place: (point: T, index: number) => number): Curve<T>;
    defined(known: (point: T, index: number) => boolean): Curve<T>;
  }
  export function line<T = [number, number]>(): Curve<T>;
  export interface Area<T> {
    (points: Iterable<T>): string | null;
    x(place: (point: T, index: number) => number): Area<T>;
    y0(place: number | ((point: T, index: number) => number)): Area<T>;
    y1(place: number | ((point: T, index: number) => number)): Area<T>;
    defined(known: (point: T, index: number) => boolean): Area<T>;
  }
  export function area<T = [number, number]>(): Area<T>;
}
