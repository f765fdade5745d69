let context: AudioContext | undefined;
let now: AudioBufferSourceNode | undefined;

/** Plays samples from -1 to 1; what was playing stops. */
export async function play(samples: Float32Array, rate: number): Promise<void> {
  context ??= new AudioContext();
  await context.resume();
  now?.stop();
  const buffer = context.createBuffer(1, samples.length, rate);
  buffer.copyToChannel(new Float32Array(samples), 0);
  now = context.createBufferSource();
  now.buffer = buffer;
  now.connect(context.destination);
  now.start();
}
