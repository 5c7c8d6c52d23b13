// A client by @grpc/grpc-js, gRPC in JavaScript on node's own HTTP/2. Prints one line of JSON per step.
//
//     node peer.js FOLDER_OF_PROTOS HOST:PORT STEP MODEL
'use strict';

const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [protos, address, step, model] = process.argv.slice(2);
const CALL_MS = 15000;
const options = { keepCase: true, longs: Number, enums: String, defaults: true, includeDirs: [protos] };
const sizes = { 'grpc.max_send_message_length': -1, 'grpc.max_receive_message_length': -1 };

function service(file, path, more = {}) {
  const root = grpc.loadPackageDefinition(loader.loadSync(file, options));
  const Client = path.split('.').reduce((found, name) => found[name], root);
  return new Client(address, grpc.credentials.createInsecure(), { ...sizes, ...more });
}

function deadline(ms = CALL_MS) {
  return { deadline: Date.now() + ms };
}

function call(client, method, request, more = deadline()) {
  return new Promise((resolve, reject) =>
    client[method](request, more, (error, answer) => (error ? reject(error) : resolve(answer))));
}

function failure(error) {
  return { code: grpc.status[error.code], details: error.details };
}

function request(name, values, id = '') {
  const raw = Buffer.from(new Float32Array(values).buffer);
  return {
    model_name: name,
    id,
    inputs: [{ name: 'INPUT0', datatype: 'FP32', shape: [values.length] }],
    raw_input_contents: [raw],
  };
}

function floats(answer) {
  const raw = answer.raw_output_contents[0];
  return Array.from(new Float32Array(raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.length)));
}

function inference(more) {
  return service('grpc_service.proto', 'inference.GRPCInferenceService', more);
}

const STEPS = {
  async unary(client) {
    const live = await call(client, 'ServerLive', {});
    const metadata = await call(client, 'ModelMetadata', { name: model });
    const config = await call(client, 'ModelConfig', { name: model });
    const answer = await call(client, 'ModelInfer', request(model, [1.5, -2, 3], 'seven'));
    return { live: live.live, name: metadata.name, inputs: config.config.input.length, id: answer.id, values: floats(answer) };
  },

  async health() {
    const health = service('health.proto', 'grpc.health.v1.Health');
    return { status: (await call(health, 'Check', { service: '' })).status };
  },

  async contents(client) {
    const typed = { ...request(model, [0]), raw_input_contents: [] };
    typed.inputs = [{ ...typed.inputs[0], shape: [2], contents: { fp32_contents: [0.5, 4] } }];
    return { values: floats(await call(client, 'ModelInfer', typed)) };
  },

  async many(client) {
    const calls = [];
    for (let i = 0; i < 1000; i++) calls.push(call(client, 'ModelInfer', request(model, [i, -i], String(i))));
    const answers = await Promise.all(calls);
    return { right: answers.filter((a, i) => a.id === String(i) && floats(a)[0] === i && floats(a)[1] === -i).length };
  },

  async large(client) {
    const values = new Float32Array(5_000_000).map((_, i) => i);
    const found = floats(await call(client, 'ModelInfer', request(model, values)));
    return { size: found.length, right: found.every((v, i) => v === values[i]) };
  },

  async compressed() {
    const client = inference({ 'grpc.default_compression_algorithm': grpc.compressionAlgorithms.gzip });
    const values = new Array(100_000).fill(0.25);
    const found = floats(await call(client, 'ModelInfer', request(model, values)));
    return { size: found.length, right: found.every((v) => v === 0.25) };
  },

  async error(client) {
    const metadata = new grpc.Metadata();
    metadata.set('name', 'value');
    metadata.set('bytes-bin', Buffer.from([0, 255]));
    return new Promise((resolve) =>
      client.ModelInfer(request('nöpe \u2603', [1]), metadata, deadline(), (error) => resolve(failure(error))));
  },

  async deadline(client) {
    try {
      await call(client, 'ModelInfer', request(model, [1]), deadline(200));
    } catch (error) {
      // Its details go on to say how the time was spent.
      return { code: grpc.status[error.code] };
    }
    return {};
  },

  async cancel(client) {
    const outcome = new Promise((resolve) => {
      const running = client.ModelInfer(request(model, [1]), deadline(), (error) => resolve(failure(error)));
      setTimeout(() => running.cancel(), 100);
    });
    return outcome;
  },

  async stream(client) {
    const stream = client.ModelStreamInfer(deadline());
    const ids = [];
    let right = 0;
    const errors = [];
    stream.on('data', (answer) => {
      if (answer.error_message) {
        errors.push(answer.error_message);
      } else {
        ids.push(Number(answer.infer_response.id));
        right += floats(answer.infer_response)[0] === Number(answer.infer_response.id);
      }
    });
    for (let i = 0; i < 200; i++) stream.write(request(model, [i], String(i)));
    stream.write(request('nope', [1]));
    stream.end();
    const status = await new Promise((resolve, reject) => {
      stream.on('status', resolve);
      stream.on('error', reject);
    });
    return { code: grpc.status[status.code], ordered: ids.every((id, i) => id === i), right, errors };
  },

  async cancel_stream(client) {
    const stream = client.ModelStreamInfer(deadline());
    const outcome = new Promise((resolve) => {
      stream.on('error', (error) => resolve(failure(error)));
    });
    stream.on('data', () => stream.cancel());
    stream.write(request(model, [1]));
    return outcome;
  },
};

async function main() {
  const client = inference();
  console.log(JSON.stringify(await STEPS[step](client)));
  client.close();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
