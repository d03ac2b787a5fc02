// Prepares y = x + x on a service and executes it. Usage: node client.mjs [HOST:PORT]
// With NNHAL_TLS_CA (a file), it uses TLS; with NNHAL_CLIENT_CERT and NNHAL_CLIENT_KEY, mutual TLS.
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import protobuf from "protobufjs";

const target = process.argv[2] ?? "localhost:50051";
const root = fileURLToPath(new URL("../../proto", import.meta.url));
const names = ["session", "device", "prepared_model", "burst", "cache"];
const files = names.map((name) => `nnhal/v1/${name}.proto`);

// Fields have the names of the proto files, enums are names, and responses have absent values too.
const loading = { includeDirs: [root], keepCase: true, enums: String, longs: Number, defaults: true };
const definition = protoLoader.loadSync(files, loading);
const { nnhal: { v1: nnhal } } = grpc.loadPackageDefinition(definition);
const options = { "grpc.max_receive_message_length": 16 * 2 ** 20, "grpc.keepalive_time_ms": 20_000 };
const services = ["Session", "Device", "PreparedModel", "Burst", "Cache"];
const read = (variable) => (process.env[variable] ? readFileSync(process.env[variable]) : null);
const [ca, cert, key] = ["NNHAL_TLS_CA", "NNHAL_CLIENT_CERT", "NNHAL_CLIENT_KEY"].map(read);
const credentials = ca ? grpc.credentials.createSsl(ca, key, cert) : grpc.credentials.createInsecure();
let session, device, preparedModel, burst, cache;

function connect(address) {
  const stub = (service) => new nnhal[service](address, credentials, options);
  [session, device, preparedModel, burst, cache] = services.map(stub);
}

// ErrorDetail, from the google.rpc.Status in the trailer of a failed call.
const types = new protobuf.Root();
types.resolvePath = (_, path) => (path.startsWith("google/") ? path : `${root}/${path}`);
await types.load("nnhal/v1/error.proto", { keepCase: true });
const RpcStatus = types.lookupType("nnhal.v1.RpcStatus");
const ErrorDetail = types.lookupType("nnhal.v1.ErrorDetail");

function errorDetail(error) {
  const [trailer] = error.metadata?.get("grpc-status-details-bin") ?? [];
  if (!trailer) return null; // an error of gRPC itself, for example no connection
  const [detail] = RpcStatus.decode(trailer).details;
  return ErrorDetail.toObject(ErrorDetail.decode(detail.value), { enums: String });
}

process.on("uncaughtException", (error) => {
  console.error(errorDetail(error)?.reason ?? error.details ?? error.message);
  process.exit(1);
});

function call(client, method, request) {
  return new Promise((resolve, reject) =>
    client[method](request, (error, response) => (error ? reject(error) : resolve(response))));
}

async function prepare(method, request) {
  let result;
  for await (const { notify } of device[method](request)) result = notify ?? result;
  if (result.status !== "ERROR_STATUS_NONE") throw new Error(`${result.status} ${result.reason}`);
  return result;
}

function open(address, request) { // resolves with the first event
  connect(address);
  return new Promise((resolve, reject) =>
    session.Open({ client_name: "node example", ...request }).on("error", reject).on("data", resolve));
}

// 1. Open a session. Its stream stays open as long as the handles are needed. A service with several workers redirects
// the client to one of them. ":PORT" is a port of the host that the client knows.
let event = await open(target, { accept_redirect: true });
if (event.redirect) {
  const address = event.redirect.address.replace(/^:/, target.replace(/\d+$/, ""));
  event = await open(address).catch(() => open(target)); // a firewall may hide it
}
const id = { session: event.opened.session };

try {
  // 2. Ask the device what it is.
  const { version } = await call(device, "GetVersionString", {});
  const { operand_performance: performance } = await call(device, "GetCapabilities", {});
  console.log(`driver ${version}, performance of ${performance.length} operand types`);

  // 3. Describe the model: ADD has a third operand, the activation, 0 for none.
  const tensor = { type: "OPERAND_TYPE_TENSOR_FLOAT32", dimensions: [1, 4] };
  const main = {
    operands: [
      { ...tensor, lifetime: "OPERAND_LIFE_TIME_SUBGRAPH_INPUT" },
      { type: "OPERAND_TYPE_INT32", lifetime: "OPERAND_LIFE_TIME_CONSTANT_COPY", location: { length: 4 } },
      { ...tensor, lifetime: "OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT" },
    ],
    operations: [{ type: "OPERATION_TYPE_ADD", inputs: [0, 0, 1], outputs: [2] }],
    input_indexes: [0],
    output_indexes: [2],
  };
  const model = { main, operand_values: Buffer.alloc(4) };
  const { supported } = await call(device, "GetSupportedOperations", { ...id, model });
  console.log(`supported: ${supported}`);

  // 4. Prepare it. Enums whose usual value is not 0 are given: absent would be LOW_POWER, LOW and FILES.
  const stored = { form: "CACHE_FORM_STORED", token: randomBytes(32) };
  const hints = { preference: "EXECUTION_PREFERENCE_FAST_SINGLE_ANSWER", priority: "PRIORITY_MEDIUM" };
  const prepared = await prepare("PrepareModel", { ...id, model, ...hints, cache: stored });
  console.log(`prepared, cache ${prepared.cache.state}`);

  // 5. Execute it. Pool 0 is the input by value; pool 1 is the output, which the response contains.
  const values = (array) => Buffer.from(new Float32Array(array).buffer);
  const request = (input) => ({
    pools: [{ pool: { inline: values(input) } }, { returned: {} }],
    inputs: [{ location: { pool_index: 0, length: 16 } }],
    outputs: [{ location: { pool_index: 1 } }],
  });
  const floats = ({ returned: [{ inline }] }) => [...new Float32Array(new Uint8Array(inline).buffer)];
  const handle = { ...id, prepared_model: prepared.prepared_model };
  const execution = { ...handle, request: request([1, 2, 3, 4]) };
  const result = await call(preparedModel, "ExecuteSynchronously", execution);
  console.log(`execute: ${floats(result)}`);

  // 6. A burst is one stream for many executions. Only the first message names the session and the burst.
  const opening = { ...id, ...(await call(preparedModel, "ConfigureExecutionBurst", handle)) };
  const stream = burst.Stream();
  for (let i = 0; i < 3; i++) {
    const next = { request: request([i, i, i, i]), memory_identifier_tokens: [-1, -1] };
    stream.write({ execute: i === 0 ? { ...opening, ...next } : next });
  }
  stream.end();
  for await (const { error, result } of stream) console.log(`burst: ${error ? error.reason : floats(result)}`);

  // 7. Prepare it again from the cache, without the model.
  console.log(`check: ${(await call(cache, "Check", { ...id, cache: stored })).outcome.state}`);
  console.log(`from cache: ${(await prepare("PrepareModelFromCache", { ...id, cache: stored })).status}`);

  // 8. Read the details of an error: ADD with two inputs instead of three.
  main.operations[0].inputs = [0, 0];
  await call(device, "GetSupportedOperations", { ...id, model }).catch((error) => {
    const { status, rule, reason } = errorDetail(error);
    console.log(`error: ${status} ${rule} ${reason}`);
  });
} finally {
  await call(session, "Close", id);
}
