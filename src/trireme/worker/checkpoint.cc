#include "trireme/worker/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "trireme/graph/op_cost.h"
#include "trireme/import/safetensors_writer.h"

namespace trireme {
namespace {

constexpr int32_t kSaveTag = 0;  // nothing else travels between two steps

// The first stage that reads the input, stage 0 where none does; also its rank, since replica 0
// comes first.
int32_t owner(const RunSetup& setup, int32_t input) {
  for (size_t stage = 0; stage < setup.partition.stages.size(); ++stage) {
    const std::vector<int32_t>& inputs = setup.partition.stages[stage].inputs;
    if (std::find(inputs.begin(), inputs.end(), input) != inputs.end()) {
      return static_cast<int32_t>(stage);
    }
  }
  return 0;
}

// What a rank does next may fail, which ends the run: not before the file is there.
Status await_first_rank(int32_t num_ranks, int32_t rank, Transport& transport) {
  std::array<std::byte, 1> word{};
  if (rank != 0) {
    TRIREME_TRY(Ticket ticket, transport.post_receive(0, kSaveTag, word));
    return transport.wait(ticket);
  }
  for (int32_t other = 1; other < num_ranks; ++other) {
    TRIREME_TRY(Ticket ticket, transport.post_send(other, kSaveTag, word));
    TRIREME_TRY(transport.wait(ticket));
  }
  return Status();
}

Status send_state(int32_t input, const StageKernels& kernels, Transport& transport) {
  TRIREME_TRY(Message message, kernels.state(input));
  TRIREME_TRY(Ticket ticket, transport.post_send(0, kSaveTag, message.parts[0]));
  return transport.wait(ticket);
}

}  // namespace

Status save_weights(const std::string& path, const RunSetup& setup, int32_t rank,
                    const StageKernels& kernels, Transport& transport) {
  const Graph& graph = setup.graph;
  std::vector<SafetensorsEntry> entries;
  for (const GraphInput& input : graph.inputs) {
    if (!is_saved(input)) continue;
    const TensorType& type = graph.values[input.value.value].type;
    TRIREME_TRY(std::vector<int64_t> sizes, concrete_sizes(type.sizes, {}));
    for (const std::string& name : input.names) entries.push_back({name, type.dtype, sizes});
  }
  std::optional<SafetensorsWriter> writer;
  if (rank == 0) {
    TRIREME_TRY(SafetensorsWriter created, SafetensorsWriter::create(path, entries));
    writer.emplace(std::move(created));
  }
  size_t entry = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(graph.inputs.size()); ++i) {
    const GraphInput& input = graph.inputs[i];
    if (!is_saved(input)) continue;
    const int32_t from = owner(setup, i);
    if (rank != 0) {
      if (from == rank) TRIREME_TRY(send_state(i, kernels, transport));
      continue;
    }
    std::vector<std::byte> received;
    Message own;
    std::span<const std::byte> bytes;
    if (from == 0) {
      TRIREME_TRY(own, kernels.state(i));
      bytes = own.parts[0];
    } else {
      received.resize(tensor_bytes(entries[entry].sizes, entries[entry].dtype).value_or(0));
      TRIREME_TRY(Ticket ticket, transport.post_receive(from, kSaveTag, received));
      TRIREME_TRY(transport.wait(ticket));
      bytes = received;
    }
    for (size_t n = 0; n < input.names.size(); ++n) TRIREME_TRY(writer->append(bytes));
    entry += input.names.size();
  }
  if (writer.has_value()) TRIREME_TRY(writer->commit());
  return await_first_rank(setup.num_ranks(), rank, transport);
}

}  // namespace trireme
