// Prepares y = x + x on a service and executes it. Usage: client [HOST:PORT]
#include <cstring>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "nnhal/v1/device.grpc.pb.h"
#include "nnhal/v1/error.pb.h"
#include "nnhal/v1/prepared_model.grpc.pb.h"
#include "nnhal/v1/session.grpc.pb.h"

using namespace nnhal::v1;  // the classes of the contract

// ErrorDetail, from the google.rpc.Status in the trailer of a failed call.
std::optional<ErrorDetail> error_detail(const grpc::Status& status) {
  RpcStatus rpc_status;
  ErrorDetail detail;
  if (!rpc_status.ParseFromString(status.error_details()) || rpc_status.details().empty() ||
      !rpc_status.details(0).UnpackTo(&detail)) {
    return std::nullopt;  // an error of gRPC itself, for example no connection
  }
  return detail;
}

void check(const grpc::Status& status) {
  if (status.ok()) return;
  std::optional<ErrorDetail> detail = error_detail(status);
  throw std::runtime_error(detail ? detail->rule() + " " + detail->reason() : status.error_message());
}

// ADD has a third operand, the activation, 0 for none.
Model add_model() {
  Model model;
  model.set_operand_values(std::string(4, '\0'));
  Subgraph& main = *model.mutable_main();
  for (OperandLifeTime lifetime : {OPERAND_LIFE_TIME_SUBGRAPH_INPUT, OPERAND_LIFE_TIME_CONSTANT_COPY,
                                   OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT}) {
    Operand& operand = *main.add_operands();
    operand.set_lifetime(lifetime);
    if (lifetime == OPERAND_LIFE_TIME_CONSTANT_COPY) {
      operand.set_type(OPERAND_TYPE_INT32);
      operand.mutable_location()->set_length(4);
    } else {
      operand.set_type(OPERAND_TYPE_TENSOR_FLOAT32);
      operand.add_dimensions(1);
      operand.add_dimensions(4);
    }
  }
  Operation& add = *main.add_operations();
  add.set_type(OPERATION_TYPE_ADD);
  for (int input : {0, 0, 1}) add.add_inputs(input);
  add.add_outputs(2);
  main.add_input_indexes(0);
  main.add_output_indexes(2);
  return model;
}

void run(const std::string& target) {
  grpc::ChannelArguments options;
  options.SetMaxReceiveMessageSize(16 << 20);
  options.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  auto channel = grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), options);
  auto device = Device::NewStub(channel);

  // 1. Open a session, and keep the stream open as long as the handles are needed.
  grpc::ClientContext keep_alive;
  OpenRequest open;
  open.set_client_name("C++ example");
  auto session = Session::NewStub(channel);
  auto events = session->Open(&keep_alive, open);
  SessionEvent opened;
  if (!events->Read(&opened)) check(events->Finish());
  const std::string id = opened.opened().session();

  // 2. Prepare the model. Absent, the preference would be LOW_POWER and the priority LOW.
  PrepareModelRequest prepare;
  prepare.set_session(id);
  prepare.set_preference(EXECUTION_PREFERENCE_FAST_SINGLE_ANSWER);
  prepare.set_priority(PRIORITY_MEDIUM);
  *prepare.mutable_model() = add_model();
  grpc::ClientContext preparing;
  auto stream = device->PrepareModel(&preparing, prepare);
  std::string prepared_model;
  for (PrepareModelEvent event; stream->Read(&event);) {
    if (!event.has_notify()) continue;
    prepared_model = event.notify().prepared_model();
    if (prepared_model.empty()) throw std::runtime_error(event.notify().reason());
  }
  check(stream->Finish());

  // 3. Execute it. Pool 0 is the input by value; pool 1 is the output, which the response contains.
  const std::vector<float> input{1, 2, 3, 4};
  ExecuteSynchronouslyRequest execute;
  execute.set_session(id);
  execute.set_prepared_model(prepared_model);
  Request& request = *execute.mutable_request();
  request.add_pools()->mutable_pool()->set_inline_(input.data(), input.size() * sizeof(float));
  request.add_pools()->mutable_returned();
  request.add_inputs()->mutable_location()->set_length(input.size() * sizeof(float));
  request.add_outputs()->mutable_location()->set_pool_index(1);
  grpc::ClientContext executing;
  ExecutionResult result;
  check(PreparedModel::NewStub(channel)->ExecuteSynchronously(&executing, execute, &result));
  std::vector<float> output(input.size());
  std::memcpy(output.data(), result.returned(0).inline_().data(), output.size() * sizeof(float));
  std::cout << "execute:";
  for (float value : output) std::cout << " " << value;
  std::cout << "\n";

  // 4. Read the details of an error: ADD with two inputs instead of three.
  GetSupportedOperationsRequest wrong;
  wrong.set_session(id);
  *wrong.mutable_model() = add_model();
  wrong.mutable_model()->mutable_main()->mutable_operations(0)->mutable_inputs()->RemoveLast();
  grpc::ClientContext asking;
  GetSupportedOperationsResponse supported;
  auto detail = error_detail(device->GetSupportedOperations(&asking, wrong, &supported));
  std::cout << "error: " << ErrorStatus_Name(detail->status()) << " " << detail->rule() << " "
            << detail->reason() << "\n";

  // 5. Close the session. This also ends the stream.
  CloseRequest close;
  close.set_session(id);
  grpc::ClientContext closing;
  CloseResponse closed;
  check(session->Close(&closing, close, &closed));
}

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "localhost:50051");
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
