// An image file as a tensor, with the usual preprocessing.

export const SCALINGS = {
  "ImageNet (mean and deviation)": { scale: 1 / 255, mean: [0.485, 0.456, 0.406], deviation: [0.229, 0.224, 0.225] },
  "0 to 1": { scale: 1 / 255, mean: [0, 0, 0], deviation: [1, 1, 1] },
  "-1 to 1": { scale: 1 / 127.5, mean: [1, 1, 1], deviation: [1, 1, 1] },
  "0 to 255": { scale: 1, mean: [0, 0, 0], deviation: [1, 1, 1] },
};

/** Where an input has its channels, height and width: {order, channels, height, width}; null for no image. */
export function imageLayout(format, dims) {
  if (dims.length !== 3) return null;
  const first = { order: "NCHW", channels: dims[0], height: dims[1], width: dims[2] };
  const last = { order: "NHWC", channels: dims[2], height: dims[0], width: dims[1] };
  const isImage = (layout) => [1, 3].includes(layout.channels);
  if (format === "FORMAT_NCHW") return isImage(first) ? first : null;
  if (format === "FORMAT_NHWC") return isImage(last) ? last : null;
  if (isImage(first) && dims[1] > 4) return first;
  return isImage(last) && dims[0] > 4 ? last : null;
}

/** The values of an image file: scaled to cover height and width, cut in the middle, each channel normalised. */
export async function imageValues(file, layout, scaling, integer) {
  const bitmap = await createImageBitmap(file);
  const height = layout.height > 0 ? layout.height : bitmap.height;
  const width = layout.width > 0 ? layout.width : bitmap.width;
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const factor = Math.max(width / bitmap.width, height / bitmap.height);
  const [w, hh] = [bitmap.width * factor, bitmap.height * factor];
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, (width - w) / 2, (height - hh) / 2, w, hh);
  const { data } = context.getImageData(0, 0, width, height);
  const { scale, mean, deviation } = SCALINGS[scaling];
  const area = width * height;
  const values = new Float32Array(area * layout.channels);
  for (let at = 0; at < area; at += 1) {
    const rgb = [data[4 * at], data[4 * at + 1], data[4 * at + 2]];
    const shown = layout.channels === 1 ? [0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]] : rgb;
    shown.forEach((value, channel) => {
      const normal = (value * scale - mean[channel]) / deviation[channel];
      const place = layout.order === "NCHW" ? channel * area + at : at * layout.channels + channel;
      values[place] = integer ? Math.round(Math.min(255, Math.max(0, normal))) : normal;
    });
  }
  const shape = layout.order === "NCHW" ? [layout.channels, height, width] : [height, width, layout.channels];
  return { values, shape, canvas };
}
